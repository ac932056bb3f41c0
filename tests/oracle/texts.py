"""Texts to try a tokenizer with: ten scripts, emoji, code, every byte, blanks, long words, names of special tokens; seeded."""
import pathlib
import random

# Article 1 of the Universal Declaration of Human Rights.
SENTENCES = [
    "All human beings are born free and equal in dignity and rights. They're endowed with reason and conscience, and should act towards one another in a spirit of brotherhood.",
    "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison et de conscience, et doivent agir les uns envers les autres dans un esprit de fraternité.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt und sollen einander im Geist der Brüderlichkeit begegnen.",
    "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana sahiptirler ve birbirlerine karşı kardeşlik zihniyeti ile hareket etmelidirler.",
    "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi.",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "Все люди рождаются свободными и равными в своём достоинстве и правах. Они наделены разумом и совестью и должны поступать в отношении друг друга в духе братства.",
    "Всички хора се раждат свободни и равни по достойнство и права.",
    "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق. وقد وهبوا عقلاً وضميرًا وعليهم أن يعامل بعضهم بعضًا بروح الإخاء.",
    "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "মর্যাদা ও অধিকারের ক্ষেত্রে সকল মানুষ সমান এবং স্বাধীনভাবে জন্মগ্রহণ করে।",
    "மனிதப் பிறிவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.",
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神互相对待。",
    "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა და უფლებებით.",
    "Բոլոր մարդիկ ծնվում են ազատ ու հավասար իրենց արժանապատվությամբ ու իրավունքներով։",
    "የሰው ልጅ ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው።",
]
SCRIPTS = [  # ranges of code points
    (0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x3FF), (0x400, 0x52F), (0x590, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F),
    (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x209F), (0x20D0, 0x2BFF), (0x3000, 0x30FF),
    (0x4E00, 0x9FFF), (0xA720, 0xA7FF), (0xAC00, 0xD7A3), (0xFB00, 0xFFEF), (0x10000, 0x101FF), (0x10400, 0x104FF), (0x1D400, 0x1D7FF),
    (0x1E900, 0x1E95F), (0x1F300, 0x1FAFF), (0x20000, 0x200FF),
]
EMOJI = ["👍", "👍🏽", "👩‍👩‍👧‍👦", "🇩🇪", "🇯🇵", "☃️", "1️⃣", "🏴\U000E0067\U000E0062\U000E0065\U000E006E\U000E0067\U000E007F", "😶‍🌫️", "❤️‍🔥", "🫨", "🧑🏿‍🚀", "™️", "\ufe0f", "\u200d"]
BLANKS = " \t\n\r\v\f\x1c\x1d\x85\xa0\u1680\u180e\u2000\u2003\u2009\u200a\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"
APOSTROPHES = ["'s", "'S", "'t", "'RE", "'ve", "'M", "'ll", "'lL", "'d", "’s", "’ll", "'ſ", "'", "''", "'x", "'re're"]
CODE = ["{", "}", "()", "[0]", "->", "=>", "==", "!=", "/*", "*/", "//", "#include <", ">", "\n", "\n\n", "    ", "\t", "\r\n", "x", "fooBar", "HTTPServer",
        "snake_case", "0x1F", "1e-9", "123456", ";", ",", '"', "\\n", "`", "@", "$", "%s", "&&", "||", "return ", "def ", "if(", "<div>", "</div>"]


def code_lines(limit=4000):
    """Lines of Python's own library."""
    lines = []
    for path in sorted(pathlib.Path(random.__file__).parent.glob("*.py")):
        lines += path.read_text(errors="replace").splitlines(keepends=True)
        if len(lines) > limit:
            break
    return lines



class Texts:
    def __init__(self, seed, names):
        self.random = random.Random(seed)
        self.names = names or ["<|im_start|>"]
        self.code = code_lines()

    def sentence(self):
        r = self.random
        words = r.choice(SENTENCES).split(" ")
        begin = r.randrange(len(words))
        words = words[begin:begin + r.randrange(1, 30)]
        if r.random() < 0.2:
            words = [r.choice([str.upper, str.title, str.lower])(w) for w in words]
        return r.choice([" ", " ", " ", "  ", "\n", ""]).join(words)

    def script(self):
        low, high = self.random.choice(SCRIPTS)
        return "".join(chr(self.random.randint(low, high)) for _ in range(self.random.randrange(1, 16)))

    def emoji(self):
        return "".join(self.random.choice(EMOJI) for _ in range(self.random.randrange(1, 6)))

    def code_text(self):
        r = self.random
        if r.random() < 0.5:
            at = r.randrange(len(self.code))
            return "".join(self.code[at:at + r.randrange(1, 4)])
        return "".join(r.choice(CODE) for _ in range(r.randrange(1, 20)))

    def bytes_text(self):
        return "".join(chr(self.random.randrange(256)) for _ in range(self.random.randrange(1, 24)))

    def any_text(self):
        r, points = self.random, []
        while len(points) < 6:
            point = r.randrange(0x110000)
            if not 0xD800 <= point <= 0xDFFF:
                points.append(chr(point))
        return "".join(points)

    def blanks(self):
        r = self.random
        if r.random() < 0.5:
            return r.choice(BLANKS) * r.randrange(1, 40)
        return "".join(r.choice(BLANKS) for _ in range(r.randrange(1, 12)))

    def long_word(self):
        r = self.random
        letters = r.choice(["a", "ab", "abcdefghijklmnopqrstuvwxyz", "äöüß", "абвг", "漢字仮名", "=-", "\U0001F600", "0123456789"])
        return "".join(r.choice(letters) for _ in range(r.randrange(1, 400 if r.random() < 0.95 else 5000)))

    def name(self):
        r = self.random
        name = r.choice(self.names)
        cut = r.randrange(len(name) + 1)
        return r.choice([name, name, name + name, name[:cut], name[cut:], name[:cut] + " " + name[cut:], name.upper()])

    def number(self):
        r = self.random
        digits = r.choice(["0123456789", "0123456789", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "½²³ⅣⅫ①", "\U0001D7CE\U0001D7CF"])
        return "".join(r.choice(digits) for _ in range(r.randrange(1, 12))) + r.choice(["", ".5", ",000", "%", "€"])

    def apostrophe(self):
        return self.random.choice(["I", "we", "Q", "é", "5", " "]) + self.random.choice(APOSTROPHES)

    def line(self):
        kinds = [self.sentence, self.sentence, self.script, self.emoji, self.code_text, self.bytes_text, self.any_text, self.blanks, self.long_word,
                 self.name, self.number, self.apostrophe]
        between = self.random.choice(["", "", " ", "\n"])
        return between.join(self.random.choice(kinds)() for _ in range(self.random.randrange(1, 6)))


def random_lines(n, seed, names):
    texts = Texts(seed, names)
    return [texts.line() for _ in range(n)]


def code_point_lines():
    """Every code point but surrogates and most of the private use, in turn among letters, blanks, digits and signs."""
    points = [p for p in range(0x110000) if not 0xD800 <= p <= 0xDFFF and (p < 0x32400 or 0xE0000 <= p < 0xE0200 or p % 0x400 == 0)]
    around = ["{}", "a{}b", " {}", "1{}1", "!{} ", "'{}", "A{}\n", "{}\u0301"]
    lines = []
    for i in range(0, len(points), 32):
        shape = around[i // 32 % len(around)]
        lines.append("".join(shape.format(chr(p)) for p in points[i:i + 32]))
    return lines

"""Our tokenizer is Hugging Face tokenizers' equal: the scripts in tests/oracle, and that they find a difference."""
import re

from conftest import ROOT, VENV, run

ORACLE = ROOT / "tests/oracle"


def compared(output):
    """(compared, different) of each line that says so."""
    return [(int(n), int(bad)) for n, bad in re.findall(r"(\d+) (?:compared|texts), (\d+) differ", output)]


def test_ids_and_texts_of_every_model_in_the_cache():
    done = run(VENV / "python", ORACLE / "tokenizer_oracle.py", "--lines", 10000, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    results = compared(done.stdout)
    assert len(results) >= 3 and all(n >= 5000 and bad == 0 for n, bad in results), done.stdout


def test_unigram_wordpiece_and_wordlevel():
    done = run(VENV / "python", ORACLE / "models_oracle.py", check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    results = compared(done.stdout)
    assert len(results) == 3 and all(n > 4000 and bad == 0 for n, bad in results), done.stdout


def test_every_decoder_and_rows_of_them():
    done = run(VENV / "python", ORACLE / "decoders_oracle.py", check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    results = compared(done.stdout)
    assert len(results) == 20 and all(n > 100 and bad == 0 for n, bad in results), done.stdout


def test_every_stage_of_the_pipeline():
    done = run(VENV / "python", ORACLE / "pipeline_oracle.py", "--lines", 40, "--mixed", 80, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    results = compared(done.stdout)
    assert len(results) == 4 and all(n > 700 and bad == 0 for n, bad in results), done.stdout


def test_words_of_every_pretokenizer():
    done = run(VENV / "python", ORACLE / "pretokenizer_oracle.py", check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    results = compared(done.stdout)
    assert len(results) >= 20 and all(n > 9000 and bad == 0 for n, bad in results), done.stdout


def test_every_character_is_what_it_is_to_the_library():
    done = run(VENV / "python", ORACLE / "unicode_data.py", check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2486 ranges in 4 tables" in done.stdout


def test_scripts_in_patterns():
    done = run(VENV / "python", ORACLE / "scripts_oracle.py", check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    results = compared(done.stdout)
    assert len(results) == 1 and results[0][0] >= 36 and results[0][1] == 0, done.stdout


def test_a_difference_is_found():
    done = run(VENV / "python", ORACLE / "pretokenizer_oracle.py", "--lines", 100, "--against", "gpt-2", "smollm", check=False, timeout=600)
    assert done.returncode != 0
    assert compared(done.stdout)[0][1] > 0, done.stdout + done.stderr

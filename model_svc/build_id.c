// The build id is an ELF note (System V gABI, "Note Section"; name "GNU", type NT_GNU_BUILD_ID) in a segment that is
// loaded with the program.
#define _GNU_SOURCE // dl_iterate_phdr
#include "model_svc/build_id.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct text {
    char *data;
    size_t cap;
} text;

static size_t padded(size_t n) {
    return (n + 3) & ~(size_t)3;
}

static void read_notes(const char *at, size_t len, text *out) {
    while (len >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        memcpy(&note, at, sizeof note);
        size_t size = sizeof note + padded(note.n_namesz) + padded(note.n_descsz);
        if (size > len) return;
        const char *name = at + sizeof note;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
            const uint8_t *id = (const uint8_t *)name + padded(note.n_namesz);
            for (size_t i = 0; i < note.n_descsz && 2 * i + 3 <= out->cap; i++) {
                snprintf(out->data + 2 * i, 3, "%02x", id[i]);
            }
            return;
        }
        at += size;
        len -= size;
    }
}

// Called for the program first: nothing after it is looked at.
static int visit(struct dl_phdr_info *info, size_t size, void *arg) {
    for (uint32_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_NOTE) read_notes((const char *)(info->dlpi_addr + p->p_vaddr), p->p_memsz, arg);
    }
    return 1;
}

void relay_build_id(char *out, size_t cap) {
    snprintf(out, cap, "none");
    dl_iterate_phdr(visit, &(text){out, cap});
}

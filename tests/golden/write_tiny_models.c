// Writes the models of tests/model_svc/tiny_model.h as files, for the peer to read: write_tiny_models FOLDER
#include <stdio.h>
#include <stdlib.h>

#include "tests/model_svc/tiny_model.h"

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    for (int i = 0; i < N_TINY_VARIANTS; i++) {
        char path[4096];
        size_t len;
        char *file = tiny_model_write(&tiny_variants[i], &len);
        snprintf(path, sizeof path, "%s/%s.gguf", argv[1], tiny_variants[i].name);
        FILE *f = fopen(path, "wb");
        if (!f || fwrite(file, 1, len, f) != len || fclose(f)) return 1;
        free(file);
    }
    return 0;
}

// The backends of this binary, and the choice among them.
#include "kernels/kernels.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/isa.h"
#include "kernels/ref/ref.h"

enum { MAX_BACKENDS = 3 };

static const relay_kernels *available[MAX_BACKENDS];
static uint32_t n_available;
static pthread_once_t detected = PTHREAD_ONCE_INIT;

static void detect(void) {
    relay_cpu_isa isa = relay_cpu_isa_detect();
    if (isa.avx512) available[n_available++] = &relay_kernels_avx512;
    if (isa.avx2) available[n_available++] = &relay_kernels_avx2;
    available[n_available++] = &relay_kernels_ref;
}

const relay_kernels *const *relay_kernels_available(uint32_t *count) {
    pthread_once(&detected, detect);
    *count = n_available;
    return available;
}

static const char *const kv_type_names[RELAY_KV_N_TYPES] = {"f16", "f32", "bf16", "int8", "int4"};

const char *relay_kv_type_name(relay_kv_type type) {
    return kv_type_names[type];
}

relay_kv_type relay_kv_type_of(const char *name) {
    for (uint32_t t = 0; t < RELAY_KV_N_TYPES; t++) {
        if (strcmp(name, kv_type_names[t]) == 0) return t;
    }
    return RELAY_KV_F16;
}

relay_code relay_kernels_choose(const relay_kernels **out, const char *name, relay_err *e) {
    if (name == NULL) name = getenv("RELAY_KERNELS");
    uint32_t count;
    const relay_kernels *const *all = relay_kernels_available(&count);
    char names[64] = "";
    for (uint32_t i = 0; i < count; i++) {
        if (name == NULL || name[0] == '\0' || strcmp(name, all[i]->name) == 0) {
            *out = all[i];
            return RELAY_OK;
        }
        if (i > 0) strcat(names, ", ");
        strcat(names, all[i]->name);
    }
    return relay_fail(e, RELAY_FAILED_PRECONDITION, "kernels \"%s\" are not available here; available are %s", name,
                      names);
}

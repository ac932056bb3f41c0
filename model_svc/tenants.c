// A table that is searched from its begin: tenants are few beside what a step costs. A tenant without users keeps its
// place, and with it its time, until another one needs it; the one with the earliest time goes, which has least to
// lose.
#include "model_svc/tenants.h"

#include <stdbool.h>
#include <stdlib.h>

#include "common/status.h"

typedef struct tenant {
    uint64_t name_hash;
    uint64_t time; // rows
    uint32_t n_users;
} tenant;

struct relay_tenants {
    uint32_t n, max;
    uint64_t now; // the earliest time of those with users, when it was last looked at
    tenant tenants[];
};

relay_tenants *relay_tenants_create(uint32_t max_users) {
    relay_tenants *t = relay_calloc(1, sizeof *t + (uint64_t)max_users * sizeof t->tenants[0]);
    t->max = max_users;
    return t;
}

void relay_tenants_destroy(relay_tenants *t) {
    free(t);
}

static void move_on(relay_tenants *t) {
    uint64_t first = UINT64_MAX;
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->tenants[i].n_users > 0 && t->tenants[i].time < first) first = t->tenants[i].time;
    }
    if (first != UINT64_MAX && first > t->now) t->now = first;
}

uint32_t relay_tenants_enter(relay_tenants *t, uint64_t name_hash) {
    move_on(t);
    uint32_t place = t->n;
    for (uint32_t i = 0; i < t->n; i++) {
        const tenant *x = &t->tenants[i];
        if (x->name_hash == name_hash) {
            place = i;
            break;
        }
        bool is_idle = x->n_users == 0;
        if (t->n == t->max && is_idle && (place == t->n || x->time < t->tenants[place].time)) place = i;
    }
    RELAY_ASSERT(place < t->max);
    tenant *x = &t->tenants[place];
    if (place == t->n) t->n++;
    if (x->name_hash != name_hash) *x = (tenant){.name_hash = name_hash};
    if (x->n_users++ == 0 && x->time < t->now) x->time = t->now;
    return place;
}

void relay_tenants_leave(relay_tenants *t, uint32_t place) {
    RELAY_ASSERT(t->tenants[place].n_users > 0);
    move_on(t);
    t->tenants[place].n_users--;
}

void relay_tenants_charge(relay_tenants *t, uint32_t place, uint32_t n_rows) {
    t->tenants[place].time += n_rows;
}

uint64_t relay_tenants_time(const relay_tenants *t, uint32_t place) {
    return t->tenants[place].time;
}

// How much each tenant has been served, so that the next rows go to who has had least.
//
// Start-time fair queueing (Goyal, Vin, Cheng 1996) with equal weights: each tenant's time goes on with the rows it is
// given, and the tenant whose time is earliest comes first. Who comes back after a pause begins at the time of those
// that are being served: a pause saves nothing up, and repays nothing.
//
// Tenants are known by a hash of their name; two whose hashes are equal share their turn. A fixed number; one thread;
// nothing allocates after create.
#ifndef RELAY_MODEL_SVC_TENANTS_H
#define RELAY_MODEL_SVC_TENANTS_H

#include <stdint.h>

typedef struct relay_tenants relay_tenants;

// At most `max_users` users at a time, of all tenants together.
relay_tenants *relay_tenants_create(uint32_t max_users);
void relay_tenants_destroy(relay_tenants *t);
// The place of a tenant, with one user more; valid until as many have left.
uint32_t relay_tenants_enter(relay_tenants *t, uint64_t name_hash);
void relay_tenants_leave(relay_tenants *t, uint32_t tenant);
void relay_tenants_charge(relay_tenants *t, uint32_t tenant, uint32_t n_rows);
uint64_t relay_tenants_time(const relay_tenants *t, uint32_t tenant);

#endif

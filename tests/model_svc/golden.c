#include "tests/model_svc/golden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"

golden golden_read(const char *path) {
    FILE *f = fopen(path, "r");
    RELAY_ASSERT(f);
    golden g = {0};
    char line[256];
    while (g.n_rows == 0) {
        char name[64];
        double value;
        RELAY_ASSERT(fgets(line, sizeof line, f));
        if (line[0] == '#') continue;
        RELAY_ASSERT(sscanf(line, "%63s %lf", name, &value) == 2);
        if (strcmp(name, "peer_same_top") == 0) g.peer_same_top = value;
        if (strcmp(name, "peer_mean_difference") == 0) g.peer_mean_difference = value;
        if (strcmp(name, "rows") == 0) g.n_rows = (uint32_t)value;
    }
    g.ids = relay_calloc(g.n_rows, sizeof *g.ids);
    g.top_ids = relay_calloc(g.n_rows, sizeof *g.top_ids);
    g.next_logprob = relay_calloc(g.n_rows, sizeof *g.next_logprob);
    for (uint32_t i = 0; i < g.n_rows; i++) {
        RELAY_ASSERT(fgets(line, sizeof line, f));
        RELAY_ASSERT(sscanf(line, "%u %u %lf", &g.ids[i], &g.top_ids[i], &g.next_logprob[i]) >= 1);
    }
    fclose(f);
    return g;
}

void golden_free(golden *g) {
    free(g->ids);
    free(g->top_ids);
    free(g->next_logprob);
}

// Reads one message of the type named in argv[1] from standard input, as the C copy of the contract sees it, and writes
// it again.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "grpc/health/v1/health.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "grpc/reflection/v1alpha/reflection.pb-c.h"
#include "relay/v1/generation.pb-c.h"
#include "relay/v1/model.pb-c.h"
#include "relay/v1/tokenizer.pb-c.h"

static const ProtobufCMessageDescriptor *const messages[] = {
#include "tests/proto/message_table.inc"
};

int main(int argc, char **argv) {
    static uint8_t in[1 << 20];
    size_t len = fread(in, 1, sizeof in, stdin);
    for (size_t i = 0; i < sizeof messages / sizeof messages[0]; i++) {
        if (argc != 2 || strcmp(messages[i]->name, argv[1]) != 0) continue;
        ProtobufCMessage *m = protobuf_c_message_unpack(messages[i], NULL, len, in);
        if (m == NULL) return 3;
        size_t packed_len = protobuf_c_message_get_packed_size(m);
        uint8_t *packed = relay_calloc(packed_len + 1, 1);
        protobuf_c_message_pack(m, packed);
        fwrite(packed, 1, packed_len, stdout);
        protobuf_c_message_free_unpacked(m, NULL);
        free(packed);
        return 0;
    }
    fprintf(stderr, "no such message\n");
    return 2;
}

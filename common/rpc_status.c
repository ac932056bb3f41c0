// Field numbers are those of google/rpc/status.proto, google/rpc/error_details.proto, google/protobuf/any.proto and
// google/protobuf/duration.proto.
#include "common/rpc_status.h"

#include <string.h>

#include "common/pb_wire.h"

enum { STATUS_CODE = 1, STATUS_MESSAGE = 2, STATUS_DETAILS = 3 };
enum { ANY_TYPE_URL = 1, ANY_VALUE = 2 };
enum { RETRY_INFO_DELAY = 1 };
enum { DURATION_SECONDS = 1, DURATION_NANOS = 2 };

static const char retry_info_url[] = "type.googleapis.com/google.rpc.RetryInfo";

enum { DETAIL_MAX = 128 };

static void put_message(relay_buf *out, uint32_t number, relay_buf *message) {
    relay_pb_put_bytes(out, number, message->data, message->len);
    relay_buf_fini(message);
}

void relay_rpc_status_encode(const relay_err *e, relay_buf *out) {
    relay_pb_put_varint(out, STATUS_CODE, e->code);
    relay_pb_put_bytes(out, STATUS_MESSAGE, e->message, strlen(e->message));
    if (e->retry_after_ms == 0) return;
    relay_buf delay, retry_info, any;
    relay_buf_init(&delay, DETAIL_MAX);
    relay_buf_init(&retry_info, DETAIL_MAX);
    relay_buf_init(&any, DETAIL_MAX);
    relay_pb_put_varint(&delay, DURATION_SECONDS, e->retry_after_ms / 1000);
    relay_pb_put_varint(&delay, DURATION_NANOS, e->retry_after_ms % 1000 * 1000000);
    put_message(&retry_info, RETRY_INFO_DELAY, &delay);
    relay_pb_put_bytes(&any, ANY_TYPE_URL, retry_info_url, sizeof retry_info_url - 1);
    put_message(&any, ANY_VALUE, &retry_info);
    put_message(out, STATUS_DETAILS, &any);
}

// The bytes of field `number`, or an empty reader.
static relay_pb_reader find_message(relay_pb_reader r, uint32_t number) {
    relay_pb_field f;
    while (relay_pb_next(&r, &f)) {
        if (f.number == number && f.is_bytes) return relay_pb_read(f.data, f.size);
    }
    return (relay_pb_reader){0};
}

static uint32_t duration_ms(relay_pb_reader duration) {
    relay_pb_field f;
    uint64_t seconds = 0, nanos = 0;
    while (relay_pb_next(&duration, &f)) {
        if (f.is_bytes) continue;
        if (f.number == DURATION_SECONDS) seconds = f.value;
        if (f.number == DURATION_NANOS) nanos = f.value;
    }
    // Negative values are huge here; neither they nor 49 days are a hint.
    if (duration.is_failed || seconds >= UINT32_MAX / 1000 || nanos >= 1000000000) return 0;
    return (uint32_t)(seconds * 1000 + nanos / 1000000);
}

uint32_t relay_rpc_status_retry_ms(const uint8_t *data, size_t size) {
    relay_pb_reader status = relay_pb_read(data, size);
    relay_pb_field f;
    while (relay_pb_next(&status, &f)) {
        if (f.number != STATUS_DETAILS || !f.is_bytes) continue;
        relay_pb_reader any = relay_pb_read(f.data, f.size);
        relay_pb_reader url = find_message(any, ANY_TYPE_URL);
        size_t url_len = (size_t)(url.end - url.at);
        if (url_len != sizeof retry_info_url - 1 || memcmp(url.at, retry_info_url, url_len) != 0) continue;
        return duration_ms(find_message(find_message(any, ANY_VALUE), RETRY_INFO_DELAY));
    }
    return 0;
}

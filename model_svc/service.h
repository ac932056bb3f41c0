// ModelService over gRPC: GenerateTokens, Session, Cancel, GetModelInfo, GetLoad.
//
//   queue thread   message -> check -> relay_request -> relay_engine_submit
//   publisher      relay_event -> answer -> message -> outbox of its call
//   ticker         sessions that are silent are told the step counter and the load
//
// The service can be called as soon as the server has started; until relay_model_service_serve has given it an engine
// it says UNAVAILABLE. A call that is cancelled, loses its connection or does not read takes its requests with it.
//
// Files: service.c (life, fan-out of events, Cancel, ticker), generate.c, session.c, info.c, answer.c (one request's
// messages), request_read.c (checks).
#ifndef RELAY_MODEL_SVC_SERVICE_H
#define RELAY_MODEL_SVC_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/metrics.h"
#include "common/rpc_server.h"
#include "common/vocab.h"
#include "model_svc/engine.h"
#include "model_svc/model.h"

#define RELAY_MODEL_SERVICE_NAME "relay.v1.ModelService"

typedef struct relay_model_service relay_model_service;

// Adds its methods to `server`, which must not have started. `metrics` may be NULL.
relay_model_service *relay_model_service_create(relay_rpc_server *server, relay_metrics *metrics);
// The engine's opts.publish, with the service as its argument.
void relay_model_service_publish(void *service, const relay_event *events, uint32_t n_events);
// From now on calls are served. Everything is borrowed until destroy. Call once.
void relay_model_service_serve(relay_model_service *s, relay_engine *engine, const relay_model_info *info,
                               const relay_vocab *vocab, const char *backend, uint32_t max_lease_ms);
// Sessions are told, and ended once their last sequence has; the engine is drained. Running answers go on.
void relay_model_service_drain(relay_model_service *s);
// After the server's drain and before its destroy; the engine has stopped.
void relay_model_service_destroy(relay_model_service *s);

#endif

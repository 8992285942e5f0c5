// The functions that the edited llama.cpp calls: memory by usage, from memsaver. Depends on ggml and memsaver's C
// interface, not on llama.cpp. README.md lists the environment variables that configure it.
#pragma once

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"

#include <stdbool.h>
#include <stddef.h>

#include <memsaver/c.h>

#ifdef __cplusplus
extern "C" {
#endif

// For programs. Returns the saver behind ggml's buffers, made by the first use; null if it is off or could not be made.
// It lives as long as the process. Tags are "weights", "cache" and "compute", or "<model>/weights" and so on.
GGML_API memsaver_saver* ggml_memsaver_saver(void);
// Assigns this thread's following allocations (a model, its context, its decoding) to a model. "" is the default.
GGML_API void ggml_memsaver_set_model(const char* name);

// For the edited llama-server. Before anything is allocated: its name in a share (GGML_MEMSAVER_SHARE).
GGML_API void ggml_memsaver_set_member(const char* name);
// Of an idle server: `sleep` pauses all memory; false: memsaver is off or failed, and the server frees the model as
// without memsaver. `wake` resumes it, at the same addresses; false: it is not this that sleeps.
GGML_API bool ggml_memsaver_sleep(void);
GGML_API bool ggml_memsaver_wake(void);
// In a share: other workers may have the memory of an `idle` server; `busy` gets it back, and keeps it. `idle` is
// called again each second.
GGML_API void ggml_memsaver_idle(void);
GGML_API void ggml_memsaver_busy(void);
// What a scheduler must call for the next graph: while weights arrive after a resume, what waits for them layer by
// layer; else `other`.
GGML_API ggml_backend_sched_eval_callback ggml_memsaver_eval(ggml_backend_sched_eval_callback other);

// For the edited places. Allocate tensor buffers for weights or a cache; all other allocations are "compute".
GGML_API ggml_backend_buffer_t ggml_memsaver_alloc_weights(struct ggml_context* context,
                                                           ggml_backend_buffer_type_t type);
GGML_API ggml_backend_buffer_t ggml_memsaver_alloc_cache(struct ggml_context* context, ggml_backend_buffer_type_t type);
// With GGML_MEMSAVER_WEIGHTS=source, fills a weight from the open file, now and at every resume. With
// GGML_MEMSAVER_PUBLISH, fills it from what a killed worker has published. Returns false if the caller must read it.
GGML_API bool ggml_memsaver_load(struct ggml_tensor* tensor, int file, size_t offset);
// Buffers of the CPU backend: memsaver's with GGML_MEMSAVER=host, otherwise ggml's own.
GGML_API void* ggml_memsaver_host_malloc(size_t bytes);
GGML_API void ggml_memsaver_host_free(void* pointer, size_t bytes);
// Whether the GPU's memory is memsaver's. gpu_malloc returns null on failure; gpu_free returns false if the pointer is
// not memsaver's.
GGML_API bool ggml_memsaver_on_gpu(void);
GGML_API void* ggml_memsaver_gpu_malloc(size_t bytes, int device);
GGML_API bool ggml_memsaver_gpu_free(void* pointer);

#ifdef __cplusplus
}
#endif

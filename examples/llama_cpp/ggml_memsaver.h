// What the edited llama.cpp calls: memory by usage, from memsaver. Knows ggml and memsaver's C interface, nothing of
// llama.cpp. README.md says which environment variables decide what it does.
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

// For programs. The saver behind ggml's buffers, made by its first use; null where it is off or could not be made. It
// lives as long as the process. Tags are "weights", "cache" and "compute", or "<model>/weights" and so on:
GGML_API memsaver_saver* ggml_memsaver_saver(void);
// From here on, what this thread allocates (a model, its context, what it decodes) is of this model. "" is the default.
GGML_API void ggml_memsaver_set_model(const char* name);

// For the edited places. Buffers of tensors, which are weights or a cache; what is allocated elsewhere is "compute".
GGML_API ggml_backend_buffer_t ggml_memsaver_alloc_weights(struct ggml_context* context,
                                                           ggml_backend_buffer_type_t type);
GGML_API ggml_backend_buffer_t ggml_memsaver_alloc_cache(struct ggml_context* context, ggml_backend_buffer_type_t type);
// Fills a weight from the open file that has it, now and at every resume, with GGML_MEMSAVER_WEIGHTS=source. False: the
// caller reads it by itself.
GGML_API bool ggml_memsaver_load(struct ggml_tensor* tensor, int file, size_t offset);
// The CPU backend's buffers: memsaver's with GGML_MEMSAVER=host, else ggml's own.
GGML_API void* ggml_memsaver_host_malloc(size_t bytes);
GGML_API void ggml_memsaver_host_free(void* pointer, size_t bytes);
// Whether the GPU's memory is memsaver's; a block on that device, null where there is none; false: not memsaver's.
GGML_API bool ggml_memsaver_on_gpu(void);
GGML_API void* ggml_memsaver_gpu_malloc(size_t bytes, int device);
GGML_API bool ggml_memsaver_gpu_free(void* pointer);

#ifdef __cplusplus
}
#endif

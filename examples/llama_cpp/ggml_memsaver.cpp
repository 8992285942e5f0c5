// ggml's memory by usage, on one saver for the process. Part of ggml-base in an edited checkout.
#include "ggml_memsaver.h"

#include "ggml-impl.h"

#include <cstdlib>
#include <mutex>
#include <string>

#include <unistd.h>

namespace {

enum class Where { off, gpu, host };

struct Settings {
    Where where = Where::gpu;
    bool good = true; // false: a variable has an unknown value; nothing is allocated
};

const char* variable(const char* name, const char* otherwise) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0' ? value : otherwise;
}

// Read once, because all memory of a process is in one place.
const Settings& settings() {
    static const Settings read = [] {
        Settings result;
        const std::string where = variable("GGML_MEMSAVER", "gpu");
        if (where == "off" || where == "0") {
            result.where = Where::off;
        } else if (where == "host") {
            result.where = Where::host;
        } else if (where != "gpu" && where != "1") {
            GGML_LOG_ERROR("memsaver: GGML_MEMSAVER must be off, gpu or host, not %s\n", where.c_str());
            result.good = false;
        }
        return result;
    }();
    return read;
}

struct Usage {
    const char* name;     // the last part of the tag
    const char* variable; // selects the policy
    const char* otherwise;
};
// Weights do not change, so one copy is enough. The rest is saved by default.
constexpr Usage weights{"weights", "GGML_MEMSAVER_WEIGHTS", "once"};
constexpr Usage cache{"cache", "GGML_MEMSAVER_CACHE", "host"};
constexpr Usage compute{"compute", "GGML_MEMSAVER_COMPUTE", "host"};

thread_local const Usage* usage = &compute;
thread_local std::string model;

bool read_policy(const Usage& of, memsaver_policy& policy) {
    std::string word = variable(of.variable, of.otherwise);
    if (const std::size_t comma = word.find(",compressed"); comma != std::string::npos && comma + 11 == word.size()) {
        policy.compressed = true;
        word.resize(comma);
    }
    if (word == "discard" || word == "poison") {
        policy.kind = MEMSAVER_DISCARD;
        if (word == "poison") policy.poison = 0xFF;
    } else if (word == "zero") {
        policy.kind = MEMSAVER_ZERO;
    } else if (word == "host" || word == "once") {
        policy.kind = MEMSAVER_HOST_BACKUP;
    } else if (word == "source") {
        policy.kind = MEMSAVER_FILE_SOURCE;
    } else if (word == "file" || word == "file_once") {
        policy.kind = MEMSAVER_FILE_BACKUP;
        policy.directory = variable("GGML_MEMSAVER_DIRECTORY", "/var/tmp");
    } else {
        GGML_LOG_ERROR("memsaver: %s has the invalid value %s; README.md lists the valid ones\n", of.variable,
                       variable(of.variable, ""));
        return false;
    }
    if (word == "once" || word == "file_once") policy.refresh = MEMSAVER_ONCE;
    return true;
}

bool failed(memsaver_result result, const char* what) {
    if (result != MEMSAVER_OK) {
        GGML_LOG_ERROR("memsaver: %s: %s: %s\n", what, memsaver_result_name(result), memsaver_last_error());
    }
    return result != MEMSAVER_OK;
}

// Never destroyed: static objects of the program may still hold buffers. All memory is released when the process ends.
std::mutex mutex;
memsaver_saver* made = nullptr;
bool asleep = false; // by ggml_memsaver_sleep; only the server's loop reads and writes it

// Evicts models that are not in use to make room for the model being loaded. With one model, nothing is ever idle.
int pause_idle_tags(void*, const memsaver_no_room* need) {
    memsaver_reclaim_options options = MEMSAVER_RECLAIM_OPTIONS_INIT;
    options.device = need->device;
    memsaver_reclaimed got = MEMSAVER_RECLAIMED_INIT;
    return memsaver_reclaim(made, need->bytes, &options, &got, nullptr) == MEMSAVER_OK && got.evicted_bytes > 0;
}

// The first requested device becomes the saver's own. On other devices each tag has another arena.
memsaver_saver* saver_for(int device) {
    const std::lock_guard<std::mutex> lock{mutex};
    if (made != nullptr || settings().where == Where::off || !settings().good) return made;
    memsaver_options options = MEMSAVER_OPTIONS_INIT;
    options.driver = settings().where == Where::gpu ? MEMSAVER_DRIVER_CUDA : MEMSAVER_DRIVER_HOST;
    options.device = device;
    options.host_capacity = std::strtoull(variable("GGML_MEMSAVER_HOST_MIB", "0"), nullptr, 10) << 20;
    options.on_no_room = pause_idle_tags;
    return failed(memsaver_create(&options, &made), "could not create a saver") ? nullptr : made;
}

memsaver_saver* existing_saver() {
    const std::lock_guard<std::mutex> lock{mutex};
    return made;
}

void* allocate(size_t bytes, int device) {
    memsaver_saver* const saver = saver_for(device);
    if (saver == nullptr) return nullptr;
    memsaver_policy policy = MEMSAVER_POLICY_INIT;
    if (!read_policy(*usage, policy)) return nullptr;
    memsaver_arena_options options = MEMSAVER_ARENA_OPTIONS_INIT;
    options.policy = &policy;
    if (settings().where == Where::gpu) options.device = device;
    const std::string tag = model.empty() ? usage->name : model + "/" + usage->name;
    memsaver_arena* arena = nullptr;
    void* pointer = nullptr;
    if (failed(memsaver_get_arena(saver, tag.c_str(), &options, &arena), tag.c_str())) return nullptr;
    failed(memsaver_arena_allocate(arena, bytes, 0, &pointer), tag.c_str());
    memsaver_release_arena(arena);
    return pointer;
}

bool deallocate(void* pointer) {
    memsaver_saver* const saver = existing_saver();
    if (pointer == nullptr || saver == nullptr || !memsaver_owns(saver, pointer)) return false;
    failed(memsaver_deallocate(saver, pointer), "could not deallocate a block");
    return true;
}

ggml_backend_buffer_t allocate_tensors(const Usage& of, ggml_context* context, ggml_backend_buffer_type_t type) {
    const Usage* const before = usage;
    usage = &of;
    const ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(context, type);
    usage = before;
    return buffer;
}

} // namespace

memsaver_saver* ggml_memsaver_saver(void) { return saver_for(0); }

void ggml_memsaver_set_model(const char* name) { model = name == nullptr ? "" : name; }

bool ggml_memsaver_sleep(void) {
    memsaver_saver* const saver = existing_saver();
    asleep = saver != nullptr && !failed(memsaver_pause(saver, nullptr, 0, nullptr, nullptr), "could not sleep");
    return asleep;
}

bool ggml_memsaver_wake(void) {
    if (!asleep) return false;
    // Whoever has the memory may be about to sleep.
    memsaver_resume_options options = MEMSAVER_RESUME_OPTIONS_INIT;
    options.room_within_ns = std::strtoll(variable("GGML_MEMSAVER_ROOM_SECONDS", "60"), nullptr, 10) * 1'000'000'000;
    if (failed(memsaver_resume(existing_saver(), nullptr, 0, &options, nullptr), "could not wake")) {
        GGML_ABORT("memsaver: the model stays paused"); // the server cannot go on without it
    }
    asleep = false;
    return true;
}

ggml_backend_buffer_t ggml_memsaver_alloc_weights(ggml_context* context, ggml_backend_buffer_type_t type) {
    return allocate_tensors(weights, context, type);
}

ggml_backend_buffer_t ggml_memsaver_alloc_cache(ggml_context* context, ggml_backend_buffer_type_t type) {
    return allocate_tensors(cache, context, type);
}

bool ggml_memsaver_load(ggml_tensor* tensor, int file, size_t offset) {
    memsaver_saver* const saver = existing_saver();
    if (saver == nullptr || std::string{"source"} != variable(weights.variable, weights.otherwise)) return false;
    // Other kinds of host buffers store weights in a different layout than the file.
    const bool in_host = settings().where == Where::host;
    if (tensor->buffer == nullptr || ggml_backend_buffer_is_host(tensor->buffer) != in_host) return false;
    if (!memsaver_owns(saver, tensor->data)) return false;
    std::string path(4096, '\0');
    const std::string link = "/proc/self/fd/" + std::to_string(file);
    const ssize_t length = readlink(link.c_str(), &path[0], path.size());
    if (length <= 0 || static_cast<std::size_t>(length) == path.size()) return false;
    path.resize(static_cast<std::size_t>(length));
    return !failed(memsaver_load(saver, tensor->data, ggml_nbytes(tensor), path.c_str(), offset), tensor->name);
}

void* ggml_memsaver_host_malloc(size_t bytes) {
    return settings().where == Where::host ? allocate(bytes, 0) : ggml_aligned_malloc(bytes);
}

void ggml_memsaver_host_free(void* pointer, size_t bytes) {
    if (settings().where != Where::host || !deallocate(pointer)) ggml_aligned_free(pointer, bytes);
}

bool ggml_memsaver_on_gpu(void) { return settings().where == Where::gpu; }

void* ggml_memsaver_gpu_malloc(size_t bytes, int device) { return allocate(bytes, device); }

bool ggml_memsaver_gpu_free(void* pointer) { return settings().where == Where::gpu && deallocate(pointer); }

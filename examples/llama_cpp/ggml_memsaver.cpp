// ggml's memory by usage, on one saver for the process. Part of ggml-base in an edited checkout.
#include "ggml_memsaver.h"

#include "ggml-impl.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
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
struct Block {
    const void* data;
    size_t bytes;
};
auto& without_weights = *new std::vector<Block>; // all other memory; guarded by the mutex
// For a server, whose loop calls ggml_memsaver_sleep, _wake, _idle, _busy and decodes: only its thread uses these.
bool asleep = false;                 // by ggml_memsaver_sleep
bool waking = false;                 // waits for room that holds everything
memsaver_arrival* arrival = nullptr; // of all bytes, since the last resume
memsaver_lending* lending = nullptr; // while the server is idle
int loading = -1;                    // the locked file, until the model is loaded
bool fresh = true;                   // nothing was computed since the model was loaded
long idle_seconds = 0;

// Where the workers of a router meet, and who this is. Null: memory is this process's own.
memsaver_share* share = nullptr;
std::string member = "llama-server";

// After how many seconds without a request weights are published again; 0: never.
long publish_after() { return share == nullptr ? 0 : std::strtol(variable("GGML_MEMSAVER_PUBLISH", "0"), nullptr, 10); }

const char* folder() { return variable("GGML_MEMSAVER_SHARE", nullptr); }

std::int64_t room_seconds() { return std::strtoll(variable("GGML_MEMSAVER_ROOM_SECONDS", "60"), nullptr, 10); }

// What is published: weights as they are in their files, named by file and place.
struct Weight {
    std::string name;
    const void* data;
    size_t bytes;
};
auto& loaded = *new std::vector<Weight>;
std::string publication;
memsaver_attached* predecessor = nullptr; // what a killed one with the same files has published, while this one loads
std::atomic<bool> published{false};

// Says who publishes it: a file with the number of the process.
std::string note_of(const std::string& name) { return std::string{folder()} + "/llama." + name; }

// Ends the publication, so that a pause of the weights gives their memory to others.
void withdraw() {
    if (!published.exchange(false)) return;
    (void)memsaver_withdraw(share, publication.c_str());
    std::remove(note_of(publication).c_str());
}

int withdraw_before_pause(void*, const memsaver_hook_event* event) {
    for (size_t i = 0; i < event->tag_count; ++i)
        if (event->tags[i] == std::string{weights.name}) withdraw();
    return 0;
}

// Who was killed while its weights were published leaves them with the keeper. They go if others lack room.
bool withdraw_of_the_dead() {
    bool any = false;
    std::error_code error;
    std::filesystem::directory_iterator each{folder(), error};
    for (; !error && each != std::filesystem::directory_iterator{}; each.increment(error)) {
        const std::string path = each->path().string();
        const std::string name = each->path().filename().string();
        std::FILE* const file = name.rfind("llama.", 0) == 0 ? std::fopen(path.c_str(), "r") : nullptr;
        if (file == nullptr) continue;
        int process = 0;
        const bool read = std::fscanf(file, "%d", &process) == 1;
        (void)std::fclose(file);
        if (!read || kill(process, 0) == 0 || errno != ESRCH) continue;
        std::remove(path.c_str());
        any = memsaver_withdraw(share, name.c_str() + 6) == MEMSAVER_OK || any;
    }
    return any;
}

// What a predecessor had published goes: this process has its own weights, or reads the rest of them from the file.
bool leave_predecessor() {
    if (predecessor == nullptr) return false;
    memsaver_attached_info about = MEMSAVER_ATTACHED_INFO_INIT;
    (void)memsaver_get_attached_info(predecessor, &about);
    failed(memsaver_drop(made, &about.tag, 1), "could not drop what the predecessor had published");
    memsaver_release_attached(predecessor);
    predecessor = nullptr;
    (void)memsaver_withdraw(share, publication.c_str());
    return true;
}

// Evicts models that are not in use to make room for the model being loaded. With one model, nothing is ever idle.
int pause_idle_tags(void*, const memsaver_no_room* need) {
    memsaver_reclaim_options options = MEMSAVER_RECLAIM_OPTIONS_INIT;
    options.device = need->device;
    memsaver_reclaimed got = MEMSAVER_RECLAIMED_INIT;
    return memsaver_reclaim(made, need->bytes, &options, &got, nullptr) == MEMSAVER_OK && got.evicted_bytes > 0;
}

// In a share: the idle members were asked. Waits for the busy ones, up to 100 times for one call.
int await_room(void*, const memsaver_no_room*) {
    if (waking) return 0; // a resume, which waits itself
    if (!leave_predecessor() && !withdraw_of_the_dead())
        std::this_thread::sleep_for(std::chrono::milliseconds{10 * room_seconds()});
    return 1;
}

bool join(memsaver_options& options) {
    memsaver_share_options as = MEMSAVER_SHARE_OPTIONS_INIT;
    as.name = member.c_str();
    as.folder = folder();
    as.trusted = true;
    if (failed(memsaver_join_share(&options, &as, &share), "could not join the share")) return false;
    options.share = share;
    options.on_no_room = await_room;
    // One at a time loads: two that each have half of what they need would wait for each other.
    loading = open((std::string{folder()} + "/loading").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    while (loading >= 0 && flock(loading, LOCK_EX) != 0 && errno == EINTR) {
    }
    return true;
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
    // Contexts of other workers need memory too.
    const char* const margin = folder() != nullptr && settings().where == Where::gpu ? "1024" : "0";
    options.margin = std::strtoull(variable("GGML_MEMSAVER_MARGIN_MIB", margin), nullptr, 10) << 20;
    if (folder() != nullptr) {
        if (settings().where == Where::host) options.host_machine = variable("GGML_MEMSAVER_HOST_MACHINE", "llama.cpp");
        if (share == nullptr && !join(options)) return nullptr;
    }
    if (failed(memsaver_create(&options, &made), "could not create a saver")) return nullptr;
    if (share != nullptr) (void)memsaver_add_hook(made, MEMSAVER_BEFORE_PAUSE, withdraw_before_pause, nullptr, nullptr);
    return made;
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
    options.evictable = share != nullptr; // while the server lends
    if (settings().where == Where::gpu) options.device = device;
    const std::string tag = model.empty() ? usage->name : model + "/" + usage->name;
    memsaver_arena* arena = nullptr;
    void* pointer = nullptr;
    if (failed(memsaver_get_arena(saver, tag.c_str(), &options, &arena), tag.c_str())) return nullptr;
    failed(memsaver_arena_allocate(arena, bytes, 0, &pointer), tag.c_str());
    memsaver_release_arena(arena);
    if (pointer != nullptr && bytes != 0 && usage != &weights) {
        const std::lock_guard<std::mutex> lock{mutex};
        without_weights.push_back({pointer, bytes});
    }
    return pointer;
}

bool deallocate(void* pointer) {
    memsaver_saver* const saver = existing_saver();
    if (pointer == nullptr || saver == nullptr || !memsaver_owns(saver, pointer)) return false;
    if (std::any_of(loaded.begin(), loaded.end(), [&](const Weight& each) { return each.data == pointer; })) {
        withdraw();
        loaded.clear();
    }
    {
        const std::lock_guard<std::mutex> lock{mutex};
        for (Block& each : without_weights) {
            if (each.data != pointer) continue;
            each = without_weights.back();
            without_weights.pop_back();
            break;
        }
    }
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

std::string path_of(int file) {
    std::string path(4096, '\0');
    const std::string link = "/proc/self/fd/" + std::to_string(file);
    const ssize_t length = readlink(link.c_str(), &path[0], path.size());
    path.resize(length <= 0 || static_cast<std::size_t>(length) == path.size() ? 0 : static_cast<std::size_t>(length));
    return path;
}

// Notes a weight for publishing. Fills it from what a killed predecessor has published, if that is there.
bool load_published(ggml_tensor* tensor, int file, size_t offset) {
    struct stat about {};
    if (fstat(file, &about) != 0) return false;
    char id[80];
    std::snprintf(id, sizeof id, "%llx.%llx.%llx.%llx", static_cast<unsigned long long>(about.st_dev),
                  static_cast<unsigned long long>(about.st_ino), static_cast<unsigned long long>(about.st_size),
                  static_cast<unsigned long long>(about.st_mtim.tv_sec) * 1'000'000'000ULL +
                      static_cast<unsigned long long>(about.st_mtim.tv_nsec));
    if (loaded.empty()) {
        publication = member.substr(0, 40) + " " + id;
        std::replace(publication.begin(), publication.end(), '/', '_');
        (void)memsaver_attach(share, publication.c_str(), made, nullptr, &predecessor);
    }
    loaded.push_back({std::string{id} + " " + std::to_string(offset), tensor->data, ggml_nbytes(tensor)});
    memsaver_attached_range from = MEMSAVER_ATTACHED_RANGE_INIT;
    if (predecessor == nullptr || memsaver_attached_at(predecessor, loaded.back().name.c_str(), &from) != MEMSAVER_OK ||
        from.bytes != loaded.back().bytes) {
        return false;
    }
    ggml_tensor there = *tensor;
    there.data = const_cast<void*>(from.data);
    ggml_backend_tensor_copy(&there, tensor);
    return true;
}

// The model is loaded: the next one may, and nobody needs the pages of a predecessor.
void end_loading() {
    if (leave_predecessor()) GGML_LOG_WARN("memsaver: weights came from a predecessor that was killed\n");
    if (loading >= 0) (void)close(loading);
    loading = -1;
}

bool can_publish() {
    size_t away = 0;
    const char* const tag = weights.name;
    return !published && !loaded.empty() && memsaver_bytes_to_resume(made, &tag, 1, &away) == MEMSAVER_OK && away == 0;
}

void publish() {
    std::vector<const char*> names;
    std::vector<const void*> data;
    std::vector<size_t> bytes;
    for (const Weight& each : loaded) {
        names.push_back(each.name.c_str());
        data.push_back(each.data);
        bytes.push_back(each.bytes);
    }
    memsaver_publish_options options = MEMSAVER_PUBLISH_OPTIONS_INIT;
    options.names = names.data();
    options.data = data.data();
    options.bytes = bytes.data();
    options.count = loaded.size();
    if (failed(memsaver_publish(share, publication.c_str(), made, weights.name, &options, nullptr),
               "could not publish weights")) {
        loaded.clear(); // not again
        return;
    }
    published = true;
    if (std::FILE* const file = std::fopen(note_of(publication).c_str(), "w")) {
        (void)std::fprintf(file, "%d", getpid());
        (void)std::fclose(file);
    }
}

void end_arrival() {
    memsaver_end_arrival(arrival);
    arrival = nullptr;
}

// Begins to resume everything: all of it has room, or nothing. On return the weights are still arriving, the rest is
// there.
memsaver_result resume(std::int64_t within) {
    end_arrival();
    std::vector<Block> blocks;
    {
        const std::lock_guard<std::mutex> lock{mutex};
        blocks = without_weights;
    }
    std::vector<const void*> data;
    std::vector<size_t> bytes;
    for (const Block& each : blocks) {
        data.push_back(each.data);
        bytes.push_back(each.bytes);
    }
    memsaver_resume_options options = MEMSAVER_RESUME_OPTIONS_INIT;
    options.room_within_ns = within;
    memsaver_resume_async_options streamed = MEMSAVER_RESUME_ASYNC_OPTIONS_INIT;
    streamed.resuming = &options;
    streamed.first = data.data();
    streamed.first_bytes = bytes.data();
    streamed.first_count = data.size();
    memsaver_result result = memsaver_resume_async(made, nullptr, 0, &streamed, &arrival);
    for (size_t i = 0; result == MEMSAVER_OK && i < data.size(); ++i)
        result = memsaver_arrival_wait_range(arrival, data[i], bytes[i]);
    return result;
}

// Ends the lending and resumes everything, waiting for room. Meanwhile nothing is held: two that each have a part of
// what they need would wait for each other.
void resume_and_keep() {
    using Clock = std::chrono::steady_clock;
    memsaver_end_lending(lending); // what is asked for now is given first
    lending = nullptr;
    waking = true;
    const auto until = Clock::now() + std::chrono::seconds{room_seconds()};
    memsaver_result result = resume(0);
    for (std::int64_t attempt = 5'000'000'000; result == MEMSAVER_OUT_OF_MEMORY;
         attempt *= 2) { // each waits behind all
        const std::int64_t left = std::chrono::nanoseconds{until - Clock::now()}.count();
        if (left <= 0) break;
        (void)failed(memsaver_pause(made, nullptr, 0, nullptr, nullptr), "could not give its memory back");
        if (share != nullptr) (void)withdraw_of_the_dead();
        result = resume(std::min(attempt, left));
    }
    waking = false;
    if (failed(result, "could not wake")) GGML_ABORT("memsaver: the model stays paused"); // cannot go on without it
}

// For ggml's scheduler: `ask` for each node whether to stop after it, which is at the end of a layer. Weights of the
// next one are waited for while this one is computed.
bool await_weights(ggml_tensor* node, bool ask, void*) {
    if (!ask) return true;
    for (const ggml_tensor* each : node->src) {
        if (each == nullptr || each->buffer == nullptr ||
            ggml_backend_buffer_get_usage(each->buffer) != GGML_BACKEND_BUFFER_USAGE_WEIGHTS ||
            !memsaver_owns(made, each->data))
            continue;
        if (failed(memsaver_arrival_wait_range(arrival, each->data, ggml_nbytes(each)), each->name))
            GGML_ABORT("memsaver: weights did not arrive");
    }
    return std::strncmp(node->name, "l_out", 5) == 0;
}

} // namespace

memsaver_saver* ggml_memsaver_saver(void) { return saver_for(0); }

void ggml_memsaver_set_model(const char* name) { model = name == nullptr ? "" : name; }

void ggml_memsaver_set_member(const char* name) { member = name; }

bool ggml_memsaver_sleep(void) {
    memsaver_saver* const saver = existing_saver();
    if (saver != nullptr) end_arrival();
    asleep = saver != nullptr && !failed(memsaver_pause(saver, nullptr, 0, nullptr, nullptr), "could not sleep");
    return asleep;
}

bool ggml_memsaver_wake(void) {
    if (!asleep) return false;
    resume_and_keep(); // whoever has the memory may be about to sleep
    asleep = false;
    return true;
}

void ggml_memsaver_idle(void) {
    if (existing_saver() == nullptr || asleep) return;
    bool done = true;
    if (arrival != nullptr) (void)memsaver_arrival_done(arrival, &done);
    if (!done) return; // it was woken, and its first request is about to come
    end_arrival();
    if (share == nullptr) return;
    // Once the model is loaded, and when the server has been idle: this is called each second.
    idle_seconds += lending != nullptr ? 1 : 0;
    if ((fresh || idle_seconds >= publish_after()) && can_publish()) {
        memsaver_end_lending(lending);
        lending = nullptr;
        publish();
    }
    fresh = false;
    if (lending != nullptr) return;
    // Waits for the device, because evictions do not: a trim of a tag that has nothing to release, if there is one.
    const char* const tag = cache.name;
    if (memsaver_trim(made, &tag, 1, nullptr, nullptr) != MEMSAVER_OK)
        failed(memsaver_trim(made, nullptr, 0, nullptr, nullptr), "could not wait for the device");
    failed(memsaver_lend(share, made, &lending), "could not lend");
}

void ggml_memsaver_busy(void) {
    idle_seconds = 0;
    if (loading >= 0) end_loading();
    if (lending != nullptr) resume_and_keep();
}

ggml_backend_sched_eval_callback ggml_memsaver_eval(ggml_backend_sched_eval_callback other) {
    if (arrival == nullptr) return other;
    bool done = true;
    if (other == nullptr) (void)memsaver_arrival_done(arrival, &done);
    if (!done) return await_weights;
    end_arrival();
    return other;
}

ggml_backend_buffer_t ggml_memsaver_alloc_weights(ggml_context* context, ggml_backend_buffer_type_t type) {
    return allocate_tensors(weights, context, type);
}

ggml_backend_buffer_t ggml_memsaver_alloc_cache(ggml_context* context, ggml_backend_buffer_type_t type) {
    return allocate_tensors(cache, context, type);
}

bool ggml_memsaver_load(ggml_tensor* tensor, int file, size_t offset) {
    memsaver_saver* const saver = existing_saver();
    // Other kinds of host buffers store weights in a different layout than the file.
    const bool in_host = settings().where == Where::host;
    if (saver == nullptr || tensor->buffer == nullptr || ggml_backend_buffer_is_host(tensor->buffer) != in_host ||
        !memsaver_owns(saver, tensor->data)) {
        return false;
    }
    if (std::string{"source"} == variable(weights.variable, weights.otherwise)) {
        const std::string path = path_of(file);
        return !path.empty() &&
               !failed(memsaver_load(saver, tensor->data, ggml_nbytes(tensor), path.c_str(), offset), tensor->name);
    }
    return publish_after() > 0 && load_published(tensor, file, offset);
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

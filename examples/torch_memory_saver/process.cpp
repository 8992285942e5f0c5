#include "process.hpp"

#include "control.hpp"
#include "driver_bypass.hpp"
#include "engine.hpp"

#include "memsaver/driver/driver.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace tms {

using memsaver::CudaDriver;

namespace {

void say_nothing(const std::string&) {} // allocators retry after freeing their caches, so failures are not reported

CudaDriver open_driver(int device) {
    const DriverBypass real; // the shim does not intercept memsaver's own calls
    return CudaDriver{device, {.rdma = true}};
}

void tell(const memsaver::Event& event) {
    if (event.kind == memsaver::EventKind::ignored || event.kind == memsaver::EventKind::fell_back)
        Process::say(event.tag + ": " + event.text);
}

} // namespace

struct Process::Core {
    explicit Core(const Settings& settings)
        : engine{{.open = open_driver,
                  .disk_ring_bytes = settings.disk_chunk_bytes,
                  .retain = settings.retain,
                  .events = tell}},
          disk_directory{settings.disk_directory} {}

    Engine<CudaDriver> engine;
    std::once_flag control_opened;
    Control control;
    std::mutex mutex; // guards the members below
    std::string disk_directory;
};

namespace {

constinit std::atomic<Process*> only{
    nullptr}; // no static variable of a function: a forked child could wait for its guard

thread_local constinit Process* forking = nullptr; // the instance that this thread has locked

} // namespace

Process& Process::instance() {
    Process* found = only.load();
    if (found != nullptr) return *found;
    auto* const made = new Process;
    if (only.compare_exchange_strong(found, made)) return *made;
    delete made; // another thread was first
    return *found;
}

const int Process::watched_ = ::pthread_atfork(
    [] {
        forking = only.load();
        if (forking == nullptr) return;
        forking->core_->engine.before_fork();
        forking->core_->mutex.lock();
        forking->names.before_fork();
    },
    [] { after_fork(false); }, [] { after_fork(true); });

void Process::after_fork(bool child) noexcept {
    Process* const locked = std::exchange(forking, nullptr);
    if (locked == nullptr) return;
    locked->names.after_fork();
    locked->core_->mutex.unlock();
    locked->core_->engine.after_fork(child);
}

ThreadSettings& Process::thread() noexcept {
    thread_local ThreadSettings mine = ThreadSettings::first(instance().settings, instance().default_tag_);
    return mine;
}

void Process::say(const std::string& text) { std::fprintf(stderr, "memsaver (%d): %s\n", ::getpid(), text.c_str()); }

Process::Process()
    : settings{Settings::read([](const char* name) { return std::getenv(name); }, say)},
      default_tag_{names.intern("default")}, core_{std::make_unique<Core>(settings)} {}
Process::~Process() = default;

Code Process::allocate(int device, std::size_t bytes, void** pointer) noexcept {
    if (pointer == nullptr) return invalid_value;
    *pointer = nullptr;
    if (bytes == 0) return success;
    const Code code = as_code(
        [&] {
            const ThreadSettings& mine = thread();
            Placement placement{*mine.tag, mine.keep(), {}, device};
            if (placement.keep == Keep::disk) {
                const std::lock_guard lock{core_->mutex};
                placement.directory = core_->disk_directory;
            }
            *pointer = core_->engine.allocate(placement, bytes);
        },
        say_nothing);
    if (code != success || settings.control.empty()) return code;
    (void)as_code(
        [&] {
            std::call_once(core_->control_opened, [&] {
                const std::string trouble =
                    core_->control.open(settings.control, [this](const std::string& verb, const std::string& tag) {
                        if (verb == "pause") return pause(tag.c_str());
                        if (verb == "resume") return resume(tag.c_str());
                        say("MEMSAVER_CONTROL: \"" + verb + "\" is not a command; use pause or resume");
                        return invalid_value;
                    });
                if (!trouble.empty()) return say(trouble);
                std::atexit([] { instance().core_->control.remove(); });
            });
        },
        say);
    return code;
}

bool Process::owns(const void* pointer) const noexcept { return pointer != nullptr && core_->engine.owns(pointer); }

Code Process::free(void* pointer) noexcept {
    return as_code([&] { (void)core_->engine.free(pointer); }, say);
}

Code Process::free(void* pointer, CUstream_st* stream) noexcept {
    return as_code([&] { (void)core_->engine.free(pointer, stream); }, say);
}

Code Process::allocate_plain(int device, std::size_t bytes, void** pointer) noexcept {
    return as_code([&] { *pointer = core_->engine.allocate_plain(device, bytes); }, say_nothing);
}

Code Process::free_plain(int device, void* pointer) noexcept {
    return as_code([&] { core_->engine.free_plain(device, pointer); }, say);
}

namespace {

template <class Act>
Code on_tag(const char* what, const char* tag, const Act& act) noexcept {
    return as_code(
        [&] {
            if (!act(tag == nullptr ? "" : tag)) Process::say(std::string{what} + ": unknown tag " + tag);
        },
        [&](const std::string& text) {
            const std::string whose = tag == nullptr || *tag == '\0' ? "all tags" : tag;
            Process::say(std::string{what} + " of " + whose + " failed: " + text);
        });
}

} // namespace

Code Process::pause(const char* tag) noexcept {
    return on_tag("tms_pause", tag, [&](const char* name) { return core_->engine.pause(name); });
}

Code Process::resume(const char* tag) noexcept {
    return on_tag("tms_resume", tag, [&](const char* name) { return core_->engine.resume(name); });
}

const void* Process::backup_of(const void* pointer, std::size_t bytes) noexcept {
    const void* found = nullptr;
    (void)as_code([&] { found = core_->engine.backup_of(pointer, bytes); }, say);
    return found;
}

std::size_t Process::trim() noexcept {
    std::size_t released = 0;
    (void)as_code([&] { released = core_->engine.trim(); }, say);
    return released;
}

void Process::set_retain(bool retain) noexcept { core_->engine.set_retain(retain); }
bool Process::retain() const noexcept { return core_->engine.retain(); }
void Process::set_margin(std::size_t bytes) noexcept { core_->engine.set_margin(bytes); }

void Process::set_disk_directory(const char* directory) {
    const std::lock_guard lock{core_->mutex};
    core_->disk_directory = directory;
}

} // namespace tms

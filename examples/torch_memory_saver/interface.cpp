// The C interface that both libraries export: thread settings, pause and resume.
#include "exported.hpp"
#include "process.hpp"

#include <cstdint>
#include <optional>
#include <string>

using tms::Keep;
using tms::Process;

// A setter can fail only if it must copy a name or create something and host memory runs out, or on invalid arguments;
// the setting is then unchanged.
namespace {

template <class Act>
void quietly(const Act& act) noexcept {
    (void)tms::as_code(act, Process::say);
}

} // namespace

TMS_EXPORTED void tms_set_interesting_region(bool on) {
    quietly([&] { Process::thread().in_region = on; });
}
TMS_EXPORTED bool tms_get_interesting_region() { return Process::thread().in_region; }

TMS_EXPORTED void tms_set_current_tag(const char* tag) {
    quietly([&] {
        if (tag == nullptr || *tag == '\0')
            throw memsaver::Misuse{"tms_set_current_tag: the tag must not be null or empty"};
        Process::thread().tag = Process::instance().names.intern(tag);
    });
}
TMS_EXPORTED const char* tms_get_current_tag() { return Process::thread().tag->c_str(); }

TMS_EXPORTED void tms_set_enable_cpu_backup(bool on) {
    quietly([&] { Process::thread().cpu_backup = on; });
}
TMS_EXPORTED bool tms_get_enable_cpu_backup() { return Process::thread().cpu_backup; }

TMS_EXPORTED void tms_set_cpu_backup_backend(const char* name) {
    quietly([&] {
        const auto kind = name == nullptr ? std::nullopt : tms::host_memory_of(name);
        if (!kind) {
            throw memsaver::Misuse{std::string{"tms_set_cpu_backup_backend(\""} + (name == nullptr ? "" : name) +
                                   "\"): must be \"pinned\" or \"mmap\""};
        }
        Process::thread().host_memory = *kind;
    });
}
TMS_EXPORTED const char* tms_get_cpu_backup_backend() {
    return Process::thread().host_memory == Keep::mmap ? "mmap" : "pinned";
}

TMS_EXPORTED void tms_set_enable_disk_backup(bool on) {
    quietly([&] { Process::thread().disk_backup = on; });
}
TMS_EXPORTED bool tms_get_enable_disk_backup() { return Process::thread().disk_backup; }

TMS_EXPORTED void tms_set_disk_backup_dir(const char* directory) {
    quietly([&] {
        if (directory == nullptr || *directory == '\0')
            throw memsaver::Misuse{"tms_set_disk_backup_dir: the directory must not be null or empty"};
        Process::instance().set_disk_directory(directory);
    });
}

TMS_EXPORTED void tms_set_retain_cpu_backup(bool on) { Process::instance().set_retain(on); }
TMS_EXPORTED bool tms_get_retain_cpu_backup() { return Process::instance().retain(); }

TMS_EXPORTED void set_memory_margin_bytes(std::uint64_t bytes) { Process::instance().set_margin(bytes); }

TMS_EXPORTED int tms_pause(const char* tag) { return Process::instance().pause(tag); }
TMS_EXPORTED int tms_resume(const char* tag) { return Process::instance().resume(tag); }

TMS_EXPORTED const std::uint8_t* tms_get_cpu_backup_pointer(const std::uint8_t* pointer, std::uint64_t bytes) {
    return static_cast<const std::uint8_t*>(Process::instance().backup_of(pointer, bytes));
}

// The pages of a simulated device that several processes share: a folder with a file for each handle. Knows nothing
// about addresses or streams.
#pragma once

#include "memsaver/core/error.hpp"
#include "memsaver/driver/system.hpp"
#include "memsaver/driver/system_limits.hpp"
#include "memsaver/host/page_source.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace memsaver::inline v0_3::detail {

/// A machine's folder, /dev/shm/memsaver-UID/NAME:
/// - `lock`: locked for the length of a call, by whoever counts or changes anything here;
/// - `machine`: capacity and granularity; locked, shared, by each process that uses the machine;
/// - `p*`: a handle's pages each, as large as they are; locked by the open file description that its maker creates.
///
/// All locks are those of open file descriptions. That of a handle is passed on with its descriptor, and ends with the
/// last descriptor, mapping or message in flight that refers to it, whoever is killed when. A file whose lock has ended
/// is nobody's: who counts removes it. The last process to leave a machine without pages removes the folder.
class SharedPages final : public HostPageSource {
public:
    /// Throws Misuse for a name that cannot be one, and if the machine is in use with another size or granularity;
    /// Unavailable if there is no such folder or it is not this user's alone.
    SharedPages(const std::string& name, std::size_t capacity, std::size_t granularity)
        : capacity_{capacity}, process_{::getpid()} {
        constexpr std::size_t longest = 64;
        if (name.size() > longest || name.front() == '.' || name.find_first_of(std::string_view{"/\0", 2}) != name.npos)
            misuse({"HostDriver: .machine is ", in_quotes(name), "; valid are names of at most ", in_digits(longest),
                    " characters without '/' that do not begin with '.'"});
        const std::string base = "/dev/shm/memsaver-" + std::to_string(::geteuid());
        path_ = base + '/' + name;
        const auto must = [](const std::string& path, const Status& status) {
            if (!status.ok())
                unavailable({"HostDriver: cannot use the folder ", path, ": ", to_string(status)}, status);
        };
        must(base, SystemLocks::own_folder(base.c_str()));
        Facts wanted{{"memsaver 1"}, capacity, granularity};
        for (;;) { // the last to leave may remove it meanwhile
            Status status = SystemLocks::own_folder(path_.c_str());
            if (status.ok()) {
                const int folder = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                status = folder < 0 ? system_status(errno) : SystemFiles::opened(folder, false, folder_);
            }
            if (status.code == ENOENT) continue;
            must(path_, status);
            if (join(wanted, name)) return;
            (void)SystemFiles::close_file(folder_);
        }
    }
    ~SharedPages() override {
        if (process_ != ::getpid()) return; // the locks of a forked child are its parent's
        const Locked locked{SystemFiles::number_of(folder_)};
        const int machine = SystemFiles::number_of(machine_);
        (void)SystemLocks::lock(machine, F_UNLCK);
        std::size_t taken = 0;
        if (!locked.status().ok() || SystemLocks::locked_by_another(machine) || !count(taken).ok() || taken != 0)
            return;
        (void)::unlinkat(folder_.descriptor, "machine", 0);
        (void)::unlinkat(folder_.descriptor, "lock", 0);
        (void)::rmdir(path_.c_str());
    }

    [[nodiscard]] std::size_t taken() noexcept override {
        const Locked locked{SystemFiles::number_of(folder_)};
        std::size_t taken = 0;
        return locked.status().ok() && count(taken).ok() && taken < capacity_ ? taken : capacity_;
    }
    /// Allocates all pages now, because a full file system would otherwise be a SIGBUS, and a full system the end of
    /// some process.
    Status take(std::size_t bytes, HostPages& pages) override {
        HostPages added;
        if (const Status status = add(bytes, added); !status.ok()) return status;
        std::size_t available = bytes;
        (void)SystemMemory::host_available(available);
        Status status = HostStatus::out_of_host_memory;
        if (bytes <= available) status = SystemFiles::allocate_file(added.file, 0, bytes); // not locked: clears them
        if (status.ok())
            pages = added;
        else
            give_back(added);
        if (status.code != ENOSPC) return status;
        return {StatusKind::out_of_host_memory, ENOSPC, "ENOSPC: /dev/shm is full (HostDriverOptions::machine)"};
    }
    Status take_room(std::size_t bytes, HostPages& pages) noexcept override { return add(bytes, pages); }
    void give_back(const HostPages& pages) noexcept override {
        (void)SystemFiles::close_file(pages.file);
        const Locked locked{SystemFiles::number_of(folder_)};
        std::size_t taken = 0;
        if (locked.status().ok()) (void)count(taken); // removes it, if nobody else has it
    }

    Status export_pages(const HostPages& pages, int& descriptor) noexcept override {
        if (const Status status = SystemFiles::still_open(pages.file); !status.ok()) return status;
        const int copy = ::fcntl(pages.file.descriptor, F_DUPFD_CLOEXEC, 0);
        if (copy < 0) return system_status(errno);
        descriptor = copy;
        return HostStatus::ok;
    }
    Status import_pages(int descriptor, HostPages& pages) noexcept override {
        std::array<char, 64> link{};
        std::array<char, 512> path{};
        (void)std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", descriptor);
        const ssize_t length = ::readlink(link.data(), path.data(), path.size());
        const std::string_view found{path.data(), length < 0 ? 0 : static_cast<std::size_t>(length)};
        struct stat facts {};
        if (found.size() < path_.size() + 2 || found.substr(0, path_.size()) != path_ ||
            found.substr(path_.size(), 2) != "/p" || ::fstat(descriptor, &facts) != 0 || facts.st_nlink == 0)
            return HostStatus::invalid_value;
        const int copy = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
        if (copy < 0) return system_status(errno);
        HostPages imported{{}, 0, static_cast<std::size_t>(facts.st_size)};
        if (const Status status = SystemFiles::opened(copy, false, imported.file); !status.ok()) return status;
        pages = imported;
        return HostStatus::ok;
    }

private:
    /// The file `lock`, locked.
    class Locked {
    public:
        explicit Locked(int folder) noexcept : file_{::openat(folder, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600)} {
            status_ = file_ < 0 ? system_status(errno) : SystemLocks::lock(file_, F_WRLCK, true);
            removed_ = status_.ok() && !SystemLocks::is_named(file_, folder, "lock");
        }
        ~Locked() {
            if (file_ < 0) return;
            (void)SystemLocks::lock(file_, F_UNLCK); // a child may have been forked meanwhile
            (void)::close(file_);
        }
        Locked& operator=(Locked&&) = delete;

        [[nodiscard]] const Status& status() const noexcept { return status_; }
        /// The folder was removed before the lock was had: it excludes nobody.
        [[nodiscard]] bool removed() const noexcept { return removed_; }

    private:
        int file_;
        bool removed_ = false;
        Status status_;
    };
    struct Open : FileRef { // closed with it
        Open& operator=(Open&&) = delete;
        ~Open() { (void)SystemFiles::close_file(*this); }
    };
    struct Facts {
        std::array<char, 16> version{};
        std::uint64_t capacity = 0;
        std::uint64_t granularity = 0;
    };

    /// Opens the folder and joins the machine there. False if it was removed meanwhile.
    bool join(const Facts& wanted, const std::string& name) {
        const Locked locked{SystemFiles::number_of(folder_)};
        if (locked.removed() || locked.status().code == ENOENT) return false;
        const auto must = [&](const Status& status) {
            if (!status.ok()) unavailable({"HostDriver: cannot use ", path_, ": ", to_string(status)}, status);
        };
        must(locked.status());
        const int made = ::openat(folder_.descriptor, "machine", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        must(made < 0 ? system_status(errno) : SystemFiles::opened(made, false, machine_));
        const int machine = machine_.descriptor;
        std::size_t taken = 0;
        must(count(taken));
        Facts found;
        if (taken == 0 && !SystemLocks::locked_by_another(machine)) {
            if (::pwrite(machine, &wanted, sizeof wanted, 0) != sizeof wanted) must(system_status(errno));
        } else if (::pread(machine, &found, sizeof found, 0) != sizeof found || found.version != wanted.version) {
            unavailable({"HostDriver: the machine ", in_quotes(name), " is in use by another version of memsaver"});
        } else if (found.capacity != wanted.capacity || found.granularity != wanted.granularity) {
            misuse({"HostDriver: the machine ", in_quotes(name), " has ", in_bytes(found.capacity), " in units of ",
                    in_bytes(found.granularity), " as long as it is used, not ", in_bytes(wanted.capacity),
                    " in units of ", in_bytes(wanted.granularity)});
        }
        must(SystemLocks::lock(machine, F_RDLCK));
        return true;
    }
    /// Counts what is taken, and removes what is nobody's. Requires the lock.
    Status count(std::size_t& taken) noexcept {
        std::size_t sum = 0;
        const Status status = SystemLocks::each_name(folder_.descriptor, [&](const char* name) {
            if (name[0] == 'p') sum += size_if_held(name);
        });
        if (status.ok()) taken = sum;
        return status;
    }
    /// Removes the file of pages whose lock has ended. Returns its size, or 0.
    std::size_t size_if_held(const char* file) noexcept {
        struct stat found {};
        const int other = ::openat(folder_.descriptor, file, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (other < 0)
            return ::fstatat(folder_.descriptor, file, &found, 0) == 0 ? static_cast<std::size_t>(found.st_size) : 0;
        const bool held = SystemLocks::locked_by_another(other);
        if (!held) (void)::unlinkat(folder_.descriptor, file, 0);
        const std::size_t bytes = held && ::fstat(other, &found) == 0 ? static_cast<std::size_t>(found.st_size) : 0;
        (void)::close(other);
        return bytes;
    }
    Status add(std::size_t bytes, HostPages& pages) noexcept {
        if (const Status status = SystemLimits::file_size(bytes); !status.ok()) return status;
        const Locked locked{SystemFiles::number_of(folder_)};
        if (!locked.status().ok()) return locked.status();
        std::size_t taken = 0;
        if (const Status status = count(taken); !status.ok()) return status;
        if (taken > capacity_ || bytes > capacity_ - taken) return HostStatus::out_of_memory;
        std::array<char, 64> name{};
        int file = -1;
        do { // a process with the same number in another container may have taken the name
            (void)std::snprintf(name.data(), name.size(), "p%ld-%llu", static_cast<long>(::getpid()),
                                static_cast<unsigned long long>(next_++));
            file = ::openat(folder_.descriptor, name.data(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        } while (file < 0 && errno == EEXIST);
        if (file < 0) return system_status(errno);
        if (SystemLocks::lock(file, F_WRLCK).ok() && ::ftruncate(file, static_cast<off_t>(bytes)) == 0) {
            pages = {{}, 0, bytes};
            const Status status = SystemFiles::opened(file, false, pages.file);
            if (!status.ok()) (void)::unlinkat(folder_.descriptor, name.data(), 0);
            return status;
        }
        const int error = errno;
        (void)::unlinkat(folder_.descriptor, name.data(), 0);
        (void)::close(file);
        return system_status(error);
    }

    std::string path_; // of the folder
    Open folder_;
    Open machine_;
    std::size_t capacity_;
    pid_t process_;
    std::uint64_t next_ = 0; // number of the next file
};

} // namespace memsaver::inline v0_3::detail

// The pages of a simulated device that several processes share: a folder with a file for each handle. Knows nothing
// about addresses or streams.
#pragma once

#include "memsaver/core/form.hpp"
#include "memsaver/host/page_source.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace memsaver::inline v0_3 {

namespace detail {

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
    SharedPages(const std::string& name, std::size_t capacity, std::size_t granularity);
    MEMSAVER_INLINE ~SharedPages() override;

    [[nodiscard]] MEMSAVER_INLINE std::size_t taken() noexcept override;
    /// Allocates all pages now, because a full file system would otherwise be a SIGBUS.
    MEMSAVER_INLINE Status take(std::size_t bytes, HostPages& pages) override;
    MEMSAVER_INLINE Status take_room(std::size_t bytes, HostPages& pages) noexcept override;
    MEMSAVER_INLINE void give_back(const HostPages& pages) noexcept override;

    [[nodiscard]] bool exports() const noexcept override { return true; }
    MEMSAVER_INLINE Status export_pages(const HostPages& pages, int& descriptor) noexcept override;
    MEMSAVER_INLINE Status import_pages(int descriptor, HostPages& pages) noexcept override;

private:
    class Locked; // the file `lock`, locked
    struct Facts;

    /// Opens the folder and joins the machine there. False if it was removed meanwhile.
    bool join(const Facts& wanted, const std::string& name);
    /// Counts what is taken, and removes what is nobody's. Requires the lock.
    Status count(std::size_t& taken) noexcept;
    /// Removes the file of pages whose lock has ended. Returns its size, or 0.
    std::size_t size_if_held(const char* file) noexcept;
    Status add(std::size_t bytes, HostPages& pages) noexcept;

    std::string path_; // of the folder
    int folder_ = -1;  // descriptors
    int machine_ = -1;
    std::size_t capacity_;
    pid_t process_;
    std::uint64_t next_ = 0; // number of the next file
};

} // namespace detail

} // namespace memsaver::inline v0_3

#ifndef MEMSAVER_COMPILED
#include "memsaver/host/shared_pages.ipp"
#endif

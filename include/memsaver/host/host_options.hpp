// Options and counts of a HostDriver. Values only.
#pragma once

#include "memsaver/core/pointers.hpp"
#include "memsaver/core/sizes.hpp"

#include <concepts>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace memsaver::inline v0_3 {

namespace detail {
class HostPageSource;
UniquePtr<HostPageSource> shared_pages(const std::string& name, std::size_t capacity, std::size_t granularity);
} // namespace detail

/// The name of a machine that several processes share; empty: a machine of this process alone. Converts from text. Only
/// a program that names a machine contains the code for it.
class HostMachineName {
public:
    HostMachineName() noexcept = default;
    template <class S>
    requires std::convertible_to<const S&, std::string_view> HostMachineName(const S& name)
        : text_{std::string_view{name}}, pages_{&detail::shared_pages} {}

    /// The name, or empty.
    [[nodiscard]] const std::string& text() const noexcept { return text_; }

    /// What opens the machine's pages, if it has a name.
    [[nodiscard]] auto pages() const noexcept { return text_.empty() ? nullptr : pages_; }

private:
    std::string text_;
    detail::UniquePtr<detail::HostPageSource> (*pages_)(const std::string&, std::size_t, std::size_t) = nullptr;
};

/// How a HostDriver behaves. By default it is fast and as strict as a GPU; tests can make it stricter.
struct HostDriverOptions {
    /// A number for display only.
    int device = 0;

    /// Every HostDriver with this name, in any process of this user, is the same device: its capacity is that of all of
    /// them together, and pages can be exported from one to another. A name of at most 64 characters without '/'. The
    /// machine lives as long as a process uses it or keeps pages of it; all name the same capacity and granularity.
    /// Its pages are files in /dev/shm/memsaver-UID, allocated when they are created: HOST_ERROR_OUT_OF_HOST_MEMORY if
    /// /dev/shm is too small, as it is in many containers.
    HostMachineName machine{};

    /// Page granularity in bytes: a power of two, and at least the system's page size.
    std::size_t granularity = 2_MiB;

    /// Fill new pages and plain allocations with `host_poison`, at the cost of touching them. Otherwise new pages read
    /// as zero and plain allocations are undefined.
    bool poison = false;

    /// Start work only when a thread waits for it or queries whether it has completed, and then only as much as that
    /// requires. Work with missing ordering then runs too late on every run, not only occasionally.
    bool late = false;

    /// Record a fault and continue without the work concerned, for tests that read `violations()`. Otherwise a fault
    /// loses the machine, as an illegal address loses a CUDA context.
    bool survive_faults = false;

    /// Maximum bytes of host pages pinned at once; 0: none, as in a sandbox that forbids pinning.
    std::size_t pin_limit = std::numeric_limits<std::size_t>::max();
};

/// The fill byte of `HostDriverOptions::poison`.
inline constexpr unsigned char host_poison = 0xCB;

/// A pool of a HostDriver, identified by its address alone.
struct HostPool {};

/// Live resources of a HostDriver. All zero once everything has been released.
struct HostCounts {
    std::size_t reservations = 0;
    std::size_t handles = 0; ///< not released; the pages of a released handle live on while mapped
    std::size_t mappings = 0;
    std::size_t plain_allocations = 0;
    std::size_t streams = 0;
    std::size_t events = 0;
    std::size_t graphs = 0;
    std::size_t held_bytes = 0;   ///< taken from the capacity
    std::size_t pinned_bytes = 0; ///< of host pages
    friend bool operator==(const HostCounts&, const HostCounts&) = default;
};

} // namespace memsaver::inline v0_3

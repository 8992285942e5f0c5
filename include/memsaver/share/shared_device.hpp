// The machine of a share: the calls that take and give device memory, covered by grants; all others as they are.
#pragma once

#include "memsaver/core/pointers.hpp"
#include "memsaver/driver/device_around.hpp"
#include "memsaver/share/member.hpp"
#include "memsaver/share/staging.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace memsaver::inline v0_3::detail {

/// In a forked child, whose locks may be in any state, it asks nobody and counts nothing.
/// While this member is asked for room, and if its pages are to linger, `release` passes them on instead of freeing
/// them, cleared unless both trust each other, and `create` takes pages that were passed here, if they have the right
/// size. Pages that `export_pages` has named are others' too: a release gives them back to the driver, and to nobody
/// else.
class SharedDevice final : public DeviceAround {
public:
    SharedDevice(std::shared_ptr<ShareMemberCore> member, std::size_t ceiling)
        : DeviceAround{member->inner()}, member_{std::move(member)}, ceiling_{ceiling} {}
    ~SharedDevice() override {
        if (member_->forked()) (void)clearing_.release(); // its stream is the parent's
    }

    [[nodiscard]] inline Features features() const noexcept override;
    /// The members, for the text of OutOfMemory.
    [[nodiscard]] inline std::string holders() const override;
    /// Free is also what this member gets without the driver.
    inline Status memory(DeviceMemory& memory) noexcept override;
    inline Status create(std::size_t bytes, PageHandle& pages) noexcept override;
    inline Status release(PageHandle pages) noexcept override;
    inline Status drop(Address address, std::size_t bytes, PageHandle pages, bool& unmapped) noexcept override;
    inline Status allow_access(Address address, std::size_t bytes, Rights rights) noexcept override;
    inline Status export_pages(PageHandle pages, int& descriptor) noexcept override;
    inline Status allocate_plain(std::size_t bytes, Address& address) noexcept override;
    inline Status free_plain(Address address) noexcept override;
    inline Status ask_for_room(std::size_t bytes, std::int64_t within) noexcept override;

private:
    /// Bounds how many descriptors a process has of pages that were passed to it: smaller parts of the device are not.
    static constexpr std::size_t most_descriptors = 512;

    struct Held {
        std::size_t bytes = 0;
        bool shared = false;  // others may have them
        ShareFd descriptor{}; // of pages from elsewhere: the driver exports only those that were created here
    };
    using Sizes = std::unordered_map<std::uint64_t, Held>;

    /// Whether the ceiling lets this member take so much more.
    [[nodiscard]] Status allowed(std::size_t bytes) const noexcept;
    /// Makes `take`, which gives an entry of `sizes` its number.
    Status entered(std::size_t bytes, Sizes& sizes, FunctionRef<Status(std::uint64_t&, Held&)> take) noexcept;
    /// Likewise, as far as the ceiling and the other members let it. `as_pages`: see ShareMemberCore::cover; then
    /// nothing is taken.
    Status taken(std::size_t bytes, Sizes& sizes, FunctionRef<Status(std::uint64_t&, Held&)> take,
                 bool* as_pages = nullptr) noexcept;
    /// Takes pages that were passed on, and enters them. Not ok if there are none.
    Status take_passed(std::size_t bytes, PageHandle& pages) noexcept;
    /// A descriptor of pages about to be released, to be passed on; cleared, unless `as_left`, where they are `mapped`,
    /// if they are. Invalid if it cannot be.
    ShareFd pass(PageHandle pages, Held& held, bool as_left, Address mapped) noexcept;
    /// Makes `give`, which frees what `number` names.
    Status given_back(Sizes& sizes, std::uint64_t number, FunctionRef<Status()> give, Address mapped = 0) noexcept;

    std::shared_ptr<ShareMemberCore> member_;
    std::size_t ceiling_;
    std::atomic<std::size_t> least_{0}; ///< bytes of pages that are passed; 0: not known yet
    std::mutex clearing_mutex_;
    UniquePtr<Staging> clearing_;        ///< opened by the first pages that are cleared
    std::atomic<bool> unsettled_{false}; ///< pages may still be being cleared: none goes, and none comes back
    std::mutex counting_;                ///< from a look at the ceiling until what is taken counts
    std::mutex mutex_;
    Sizes handles_;
    Sizes plain_;
};

} // namespace memsaver::inline v0_3::detail

#include "memsaver/share/shared_device.ipp"

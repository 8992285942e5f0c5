// The machine of a share: the calls that take and give device memory, covered by grants; all others as they are.
#pragma once

#include "memsaver/core/pointers.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/driver/device_around.hpp"
#include "memsaver/driver/system.hpp"
#include "memsaver/share/member.hpp"
#include "memsaver/share/staging.hpp"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
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

    [[nodiscard]] Features features() const noexcept override {
        Features features = DeviceAround::features();
        features.asks = true;
        return features;
    }
    /// The members, for the text of OutOfMemory.
    [[nodiscard]] std::string holders() const override {
        if (member_->forked()) return {};
        std::string text = "members of the share:";
        for (const ShareFacts& each : member_->list())
            text += std::string{each.name[0] == '\0' ? " (no name)" : " "} + each.name.data() + " " +
                    format_bytes(each.held) + ",";
        text.pop_back();
        return text;
    }
    /// Free is also what this member gets without the driver.
    Status memory(DeviceMemory& memory) noexcept override {
        const std::uint64_t spare = member_->forked() ? 0 : member_->spare();
        const Status status = DeviceAround::memory(memory);
        if (status.ok()) memory.free_bytes += std::min<std::size_t>(spare, memory.total_bytes - memory.free_bytes);
        return status;
    }
    Status create(std::size_t bytes, PageHandle& pages) noexcept override {
        for (;;) {
            if (!member_->forked() && take_passed(bytes, pages).ok()) return {};
            bool as_pages = false;
            const auto create = [&](std::uint64_t& number, Held&) {
                // So that other members can have them; where that is not possible, they are of this process alone.
                Status status = DeviceAround::create_shared(bytes, pages);
                if (status.kind == StatusKind::unsupported) status = DeviceAround::create(bytes, pages);
                number = pages.value;
                return status;
            };
            const Status status = taken(bytes, handles_, create, &as_pages);
            if (!as_pages) return status; // else they were passed here
        }
    }
    Status release(PageHandle pages) noexcept override {
        return given_back(handles_, pages.value, [&] { return DeviceAround::release(pages); });
    }
    Status drop(Address address, std::size_t bytes, PageHandle pages, bool& unmapped) noexcept override {
        return given_back(
            handles_, pages.value, [&] { return inner().drop(address, bytes, pages, unmapped); }, address);
    }
    Status allow_access(Address address, std::size_t bytes, Rights rights) noexcept override {
        const Status status = settled();
        return status.ok() ? DeviceAround::allow_access(address, bytes, rights) : status;
    }
    Status export_pages(PageHandle pages, int& descriptor) noexcept override {
        const std::lock_guard lock{mutex_};
        const auto found = handles_.find(pages.value);
        const int kept = found == handles_.end() ? -1 : found->second.descriptor.get();
        const Status status = kept < 0 ? DeviceAround::export_pages(pages, descriptor) : Status{};
        if (kept >= 0 && (descriptor = ::fcntl(kept, F_DUPFD_CLOEXEC, 0)) < 0) return system_status(errno);
        if (status.ok() && found != handles_.end()) found->second.shared = true;
        return status;
    }
    Status allocate_plain(std::size_t bytes, Address& address) noexcept override {
        return taken(bytes, plain_, [&](std::uint64_t& number, Held&) {
            const Status status = DeviceAround::allocate_plain(bytes, address);
            number = address;
            return status;
        });
    }
    Status free_plain(Address address) noexcept override {
        return given_back(plain_, address, [&] { return DeviceAround::free_plain(address); });
    }
    Status ask_for_room(std::size_t bytes, std::int64_t within) noexcept override {
        if (member_->forked() || member_->lends_here()) return ShareMemberCore::no_room; // who gives is not given
        if (const Status status = allowed(bytes); !status.ok()) return status;
        return member_->ask(bytes, within < 0 ? ShareRoom::without_limit : within);
    }

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
    [[nodiscard]] Status allowed(std::size_t bytes) const noexcept {
        if (ceiling_ == 0 || (bytes <= ceiling_ && member_->held() <= ceiling_ - bytes)) return {};
        return {StatusKind::out_of_memory, 0, "the ceiling of this member of the share"};
    }
    /// Makes `take`, which gives an entry of `sizes` its number.
    Status entered(std::size_t bytes, Sizes& sizes, FunctionRef<Status(std::uint64_t&, Held&)> take) noexcept {
        try {
            const std::lock_guard lock{mutex_};
            sizes.reserve(sizes.size() + outside_ + 1);
            Sizes entry; // its node: nothing can fail once the memory is there
            entry[0].bytes = bytes;
            Sizes::node_type node = entry.extract(entry.begin());
            const Status status = take(node.key(), node.mapped());
            if (status.ok()) sizes.insert(std::move(node));
            return status;
        } catch (...) {
            return ShareMemberCore::no_host_memory;
        }
    }
    /// Likewise, as far as the ceiling and the other members let it. `as_pages`: see ShareMemberCore::cover; then
    /// nothing is taken.
    Status taken(std::size_t bytes, Sizes& sizes, FunctionRef<Status(std::uint64_t&, Held&)> take,
                 bool* as_pages = nullptr) noexcept {
        if (member_->forked()) return {StatusKind::other, 0, "a share in a forked child"};
        if (const Status status = allowed(bytes); !status.ok()) return status;
        const Status covered = member_->cover(bytes, as_pages);
        if (!covered.ok() || (as_pages != nullptr && *as_pages)) return covered;
        const std::lock_guard counting{counting_};
        Status status = allowed(bytes); // another thread may have taken some meanwhile
        if (status.ok()) status = entered(bytes, sizes, take);
        member_->created(bytes, status.ok());
        return status;
    }
    /// Takes pages that were passed on, and enters them. Not ok if there are none.
    Status take_passed(std::size_t bytes, PageHandle& pages) noexcept {
        ShareFd descriptor;
        {
            const std::lock_guard counting{counting_};
            if (allowed(bytes).ok()) descriptor = member_->take_pages(bytes);
        }
        if (!descriptor) return unsupported;
        const Status status = entered(bytes, handles_, [&](std::uint64_t& number, Held& held) {
            const Status imported = DeviceAround::import_pages(descriptor.get(), pages);
            number = pages.value;
            if (imported.ok()) held.descriptor = std::move(descriptor);
            return imported;
        });
        if (!status.ok()) member_->turned(bytes, std::move(descriptor));
        return status;
    }
    /// Makes pages about to be released ready to be passed on: with a descriptor; cleared, unless `as_left`, where they
    /// are `mapped`, if they are. False if they cannot be.
    bool ready_to_pass(PageHandle pages, Held& held, bool as_left, Address mapped) noexcept {
        try {
            std::size_t least = least_.load(std::memory_order_relaxed);
            if (least == 0) {
                DeviceMemory memory;
                if (!inner().memory(memory).ok()) return false;
                least_ = least = std::max<std::size_t>(memory.total_bytes / most_descriptors, 1);
            }
            if (held.bytes < least) return false;
            if (!held.descriptor)
                held.descriptor = ShareFd::exported([&] {
                    int exported = -1;
                    return DeviceAround::export_pages(pages, exported).ok() ? exported : -1;
                });
            if (held.descriptor && !as_left) {
                const std::lock_guard lock{clearing_mutex_};
                if (unsettled_) return false;
                if (mapped == 0) mapped = window_.emplace(inner(), pages, held.bytes, Rights::read_write).address();
                if (!clearing_) clearing_ = UniquePtr<Staging>::make(inner(), std::size_t{0});
                try {
                    clearing_->zero({mapped, held.bytes});
                } catch (...) {
                    unsettled_ = clearing_->unsettled();
                    if (!unsettled_) window_.reset();
                    throw;
                }
                window_.reset();
            }
            return static_cast<bool>(held.descriptor);
        } catch (...) {
            return false;
        }
    }
    /// Waits for a clear that could not be waited for; until then its pages stay, and stay mapped.
    Status settled() noexcept {
        if (!unsettled_) return {};
        const std::lock_guard lock{clearing_mutex_};
        const Status status = settle(inner(), unsettled_);
        if (status.ok()) window_.reset();
        return status;
    }
    /// Makes `give`, which frees what `number` names.
    Status given_back(Sizes& sizes, std::uint64_t number, FunctionRef<Status()> give, Address mapped = 0) noexcept {
        if (member_->forked()) return give();
        Sizes::node_type node; // taken out before: another thread may get the number again as soon as it is free
        {
            const std::lock_guard lock{mutex_};
            node = sizes.extract(number);
            outside_ += 1;
        }
        bool as_left = false;
        const bool passes = &sizes == &handles_ && !node.empty() && !node.mapped().shared &&
                            member_->passes(node.mapped().bytes, as_left) &&
                            ready_to_pass({number}, node.mapped(), as_left, mapped);
        Status status = settled();
        if (status.ok()) status = give();
        const bool freed = status.ok() && !node.empty();
        if (freed) {
            if (!passes) node.mapped().descriptor.reset(); // without it the pages are free
            member_->freed(node.mapped().bytes, std::move(node.mapped().descriptor), as_left);
        }
        const std::lock_guard lock{mutex_};
        outside_ -= 1;
        if (freed || node.empty()) return status;
        sizes.insert(std::move(node)); // there is room
        return status;
    }

    std::shared_ptr<ShareMemberCore> member_;
    std::size_t ceiling_;
    std::atomic<std::size_t> least_{0}; ///< bytes of pages that are passed; 0: not known yet
    std::mutex clearing_mutex_;
    UniquePtr<Staging> clearing_;        ///< opened by the first pages that are cleared
    std::optional<Window> window_;       ///< where these are mapped
    std::atomic<bool> unsettled_{false}; ///< pages may still be being cleared: none goes, and none comes back
    std::mutex counting_;                ///< from a look at the ceiling until what is taken counts
    std::mutex mutex_;
    Sizes handles_;
    Sizes plain_;
    std::size_t outside_ = 0; ///< entries that are being given back; they may return to their table
};

} // namespace memsaver::inline v0_3::detail

// Definitions of shared_device.hpp.
#pragma once

#include "memsaver/core/pointers.hpp"
#include "memsaver/core/sizes.hpp"
#include "memsaver/driver/system.hpp"
#include "memsaver/share/shared_device.hpp"

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
#include <utility>

namespace memsaver::inline v0_3::detail {

inline Features SharedDevice::features() const noexcept {
    Features features = DeviceAround::features();
    features.asks = true;
    return features;
}

inline std::string SharedDevice::holders() const {
    if (member_->forked()) return {};
    std::string text = "members of the share:";
    for (const ShareFacts& each : member_->list())
        text += std::string{each.name[0] == '\0' ? " (no name)" : " "} + each.name.data() + " " +
                format_bytes(each.held) + ",";
    text.pop_back();
    return text;
}

inline Status SharedDevice::memory(DeviceMemory& memory) noexcept {
    const std::uint64_t spare = member_->forked() ? 0 : member_->spare();
    const Status status = DeviceAround::memory(memory);
    if (status.ok()) memory.free_bytes += std::min<std::size_t>(spare, memory.total_bytes - memory.free_bytes);
    return status;
}

inline Status SharedDevice::allowed(std::size_t bytes) const noexcept {
    if (ceiling_ == 0 || (bytes <= ceiling_ && member_->held() <= ceiling_ - bytes)) return {};
    return {StatusKind::out_of_memory, 0, "the ceiling of this member of the share"};
}

inline Status SharedDevice::entered(std::size_t bytes, Sizes& sizes,
                                    FunctionRef<Status(std::uint64_t&, Held&)> take) noexcept {
    try {
        const std::lock_guard lock{mutex_};
        sizes.reserve(sizes.size() + 1);
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

inline Status SharedDevice::taken(std::size_t bytes, Sizes& sizes, FunctionRef<Status(std::uint64_t&, Held&)> take,
                                  bool* as_pages) noexcept {
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

inline Status SharedDevice::take_passed(std::size_t bytes, PageHandle& pages) noexcept {
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

inline ShareFd SharedDevice::pass(PageHandle pages, Held& held, bool as_left, Address mapped) noexcept {
    try {
        std::size_t least = least_.load(std::memory_order_relaxed);
        if (least == 0) {
            DeviceMemory memory;
            if (!inner().memory(memory).ok()) return {};
            least_ = least = std::max<std::size_t>(memory.total_bytes / most_descriptors, 1);
        }
        if (held.bytes < least) return {};
        ShareFd descriptor = std::move(held.descriptor);
        if (!descriptor)
            descriptor = ShareFd::exported([&] {
                int exported = -1;
                return DeviceAround::export_pages(pages, exported).ok() ? exported : -1;
            });
        if (descriptor && !as_left) {
            std::optional<Window> window;
            if (mapped == 0) mapped = window.emplace(inner(), pages, held.bytes, Rights::read_write).address();
            const std::lock_guard lock{clearing_mutex_};
            if (!clearing_) clearing_ = UniquePtr<Staging>::make(inner(), std::size_t{0});
            try {
                clearing_->zero({mapped, held.bytes});
            } catch (...) {
                if (clearing_->unsettled()) unsettled_ = true;
                throw;
            }
        }
        return descriptor;
    } catch (...) {
        return {};
    }
}

inline Status SharedDevice::given_back(Sizes& sizes, std::uint64_t number, FunctionRef<Status()> give,
                                       Address mapped) noexcept {
    if (member_->forked()) return give();
    Sizes::node_type node; // taken out before: another thread may get the number again as soon as it is free
    {
        const std::lock_guard lock{mutex_};
        node = sizes.extract(number);
    }
    bool as_left = false;
    ShareFd pages;
    if (&sizes == &handles_ && !node.empty() && !node.mapped().shared && member_->passes(node.mapped().bytes, as_left))
        pages = pass({number}, node.mapped(), as_left, mapped);
    Status status = settle(inner(), unsettled_);
    if (status.ok()) status = give();
    if (node.empty()) return status;
    if (status.ok()) {
        node.mapped().descriptor.reset(); // without it the pages are free
        member_->freed(node.mapped().bytes, std::move(pages), as_left);
    } else {
        if (pages) node.mapped().descriptor = std::move(pages);
        const std::lock_guard lock{mutex_};
        sizes.insert(std::move(node));
    }
    return status;
}

inline Status SharedDevice::create(std::size_t bytes, PageHandle& pages) noexcept {
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

inline Status SharedDevice::release(PageHandle pages) noexcept {
    return given_back(handles_, pages.value, [&] { return DeviceAround::release(pages); });
}

inline Status SharedDevice::drop(Address address, std::size_t bytes, PageHandle pages, bool& unmapped) noexcept {
    return given_back(
        handles_, pages.value, [&] { return inner().drop(address, bytes, pages, unmapped); }, address);
}

inline Status SharedDevice::allow_access(Address address, std::size_t bytes, Rights rights) noexcept {
    const Status status = settle(inner(), unsettled_);
    return status.ok() ? DeviceAround::allow_access(address, bytes, rights) : status;
}

inline Status SharedDevice::export_pages(PageHandle pages, int& descriptor) noexcept {
    const std::lock_guard lock{mutex_};
    const auto found = handles_.find(pages.value);
    const int kept = found == handles_.end() ? -1 : found->second.descriptor.get();
    const Status status = kept < 0 ? DeviceAround::export_pages(pages, descriptor) : Status{};
    if (kept >= 0 && (descriptor = ::fcntl(kept, F_DUPFD_CLOEXEC, 0)) < 0) return system_status(errno);
    if (status.ok() && found != handles_.end()) found->second.shared = true;
    return status;
}

inline Status SharedDevice::allocate_plain(std::size_t bytes, Address& address) noexcept {
    return taken(bytes, plain_, [&](std::uint64_t& number, Held&) {
        const Status status = DeviceAround::allocate_plain(bytes, address);
        number = address;
        return status;
    });
}

inline Status SharedDevice::free_plain(Address address) noexcept {
    return given_back(plain_, address, [&] { return DeviceAround::free_plain(address); });
}

inline Status SharedDevice::ask_for_room(std::size_t bytes, std::int64_t within) noexcept {
    if (member_->forked()) return ShareMemberCore::no_room;
    if (const Status status = allowed(bytes); !status.ok()) return status;
    return member_->ask(bytes, within < 0 ? ShareRoom::without_limit : within);
}

} // namespace memsaver::inline v0_3::detail

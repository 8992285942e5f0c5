// Definitions of shared_device.hpp.
#pragma once

#include "memsaver/core/sizes.hpp"
#include "memsaver/share/shared_device.hpp"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

namespace memsaver::inline v0_3 {

namespace detail {

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

inline Status SharedDevice::taken(std::size_t bytes, Sizes& sizes, FunctionRef<Status(std::uint64_t&)> take) noexcept {
    if (member_->forked()) return {StatusKind::other, 0, "a share in a forked child"};
    if (ceiling_ != 0 && (bytes > ceiling_ || member_->held() > ceiling_ - bytes))
        return {StatusKind::out_of_memory, 0, "the ceiling of this member of the share"};
    if (const Status status = member_->cover(bytes); !status.ok()) return status;
    Status status = ShareMemberCore::no_host_memory;
    try {
        const std::lock_guard lock{mutex_};
        sizes.reserve(sizes.size() + 1);
        Sizes entry{{0, bytes}}; // its node: nothing can fail once the memory is there
        Sizes::node_type node = entry.extract(entry.begin());
        status = take(node.key());
        if (status.ok()) sizes.insert(std::move(node));
    } catch (...) {
    }
    member_->created(bytes, status.ok());
    return status;
}

inline Status SharedDevice::given_back(Sizes& sizes, std::uint64_t number, FunctionRef<Status()> give) noexcept {
    if (member_->forked()) return give();
    Sizes::node_type node; // taken out before: another thread may get the number again as soon as it is free
    {
        const std::lock_guard lock{mutex_};
        node = sizes.extract(number);
    }
    const Status status = give();
    if (node.empty()) return status;
    if (status.ok()) {
        member_->freed(node.mapped());
    } else {
        const std::lock_guard lock{mutex_};
        sizes.insert(std::move(node));
    }
    return status;
}

inline Status SharedDevice::create(std::size_t bytes, PageHandle& pages) noexcept {
    return taken(bytes, handles_, [&](std::uint64_t& number) {
        // So that other members can have them; where that is not possible, they are of this process alone.
        Status status = DeviceAround::create_shared(bytes, pages);
        if (status.kind == StatusKind::unsupported) status = DeviceAround::create(bytes, pages);
        number = pages.value;
        return status;
    });
}

inline Status SharedDevice::release(PageHandle pages) noexcept {
    return given_back(handles_, pages.value, [&] { return DeviceAround::release(pages); });
}

inline Status SharedDevice::allocate_plain(std::size_t bytes, Address& address) noexcept {
    return taken(bytes, plain_, [&](std::uint64_t& number) {
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
    if (ceiling_ != 0 && (bytes > ceiling_ || member_->held() > ceiling_ - bytes))
        return {StatusKind::out_of_memory, 0, "the ceiling of this member of the share"};
    return member_->ask(bytes, within < 0 ? ShareRoom::without_limit : within);
}

} // namespace detail

} // namespace memsaver::inline v0_3

// Definitions of peer_store.hpp.
#pragma once

#include "memsaver/backup/peer_store.hpp"
#include "memsaver/core/lists.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3 {

namespace detail {

MEMSAVER_INLINE PeerPages::PeerPages(AnyDriver driver, AnyDriver peer, std::size_t bytes)
    : driver_{std::move(driver)}, peer_{std::move(peer)} {
    std::size_t granularity = 0;
    check(peer_.granularity(granularity), "query a peer's page granularity");
    bytes_ = align_up(bytes, granularity);
    parts_.reserve(bytes_ / largest_handle + 1);
}

MEMSAVER_INLINE void PeerPages::take(const std::string& whose) {
    const Status status = try_take();
    if (status.ok()) return;
    const std::string of = text_of({whose, in_bytes(bytes_), " on ", peer_.name()});
    if (status.kind != StatusKind::out_of_memory) raise(status, "allocate backup memory on a peer", of, bytes_);
    DeviceMemory memory;
    (void)peer_.memory(memory);
    throw OutOfMemory{text_of({"a backup of ", of, " does not fit: ", in_bytes(memory.free_bytes), " are free there"}),
                      bytes_, memory.free_bytes, status};
}

MEMSAVER_INLINE Status PeerPages::try_take() noexcept {
    Status status = addresses_.open(peer_, bytes_, 2_MiB);
    for (std::size_t at = 0; status.ok() && at < bytes_; at += largest_handle) {
        Part& part = parts_.emplace_back(); // reserved
        status = part.pages.open(peer_, std::min(bytes_ - at, largest_handle));
        const auto [handle, bytes] = part.pages.get();
        if (status.ok()) status = part.mapping.open(peer_, Range{address() + at, bytes}, handle);
    }
    if (status.ok()) status = peer_.allow_access(address(), bytes_);
    if (status.ok()) status = driver_.reach_peer(address(), bytes_);
    return status;
}

MEMSAVER_INLINE Status PeerPages::close() noexcept {
    Status first = settle(driver_, unsettled_);
    if (!first.ok()) return first;
    for (Part& part : parts_) {
        Status status = part.mapping.close();
        if (status.ok()) status = part.pages.close();
        if (first.ok()) first = status;
    }
    if (!first.ok()) return first;
    parts_.clear();
    return addresses_.close();
}

MEMSAVER_INLINE PeerStore::PeerStore(AnyDriver driver, AnyDriver peer, StoreOptions options)
    : KeptStore{std::move(driver), std::move(options), Ring::least_buffer, "read a backup on a peer"}, peer_{std::move(
                                                                                                           peer)} {}

MEMSAVER_INLINE Room PeerStore::grow(std::size_t bytes, const LiveSet& live) {
    about(live);
    (void)retry(); // pages that could not be released before are free memory too
    pages_.reserve(pages_.size() + 1);
    auto pages = std::make_shared<PeerPages>(driver_, peer_, bytes);
    try {
        pages->take(error_prefix_);
    } catch (...) {
        (void)share_.add(std::move(pages));
        throw;
    }
    pages_.push_back(std::move(pages));
    return {pages_.back()->address(), pages_.back()->bytes()};
}

MEMSAVER_INLINE void PeerStore::shrink(LocationSpace& space) noexcept {
    erase_in(pages_, [&](std::shared_ptr<PeerPages>& pages) {
        const bool unused = space.remove({pages->address(), pages->bytes()});
        if (unused) (void)share_.add(std::move(pages));
        return unused;
    });
}

MEMSAVER_INLINE Status PeerStore::clear() noexcept {
    Status kept = retry();
    for (auto& pages : pages_) kept = first_failure({kept, share_.add(std::move(pages))});
    pages_.clear();
    return first_failure({kept, share_.leave()});
}

MEMSAVER_INLINE std::unique_ptr<Transfer> PeerStore::start(Direction direction, std::vector<Unit> units,
                                                           const LiveSet& live, const std::vector<Range>& first) {
    std::vector<Piece> pieces = cut(std::move(units), piece_bytes, first);
    for (Piece& piece : pieces) piece.pages = pages_of(piece.location());
    auto work = direct_transfer(CopyLane{driver_, direction, true}, std::move(pieces), options_.crew, nullptr,
                                live.progress, {}, live.before_write);
    work->start();
    return work;
}

MEMSAVER_INLINE void PeerStore::change(const Unit& unit, std::size_t offset, const std::byte* from, std::size_t bytes) {
    check(put(from, unit.location + offset, bytes), "write a backup on a peer", bytes, unit.location + offset);
}

template <class Copy>
Status PeerStore::on_peer(Copy&& copy) const noexcept {
    OwnedStream stream;
    OwnedEvent event;
    Status status = stream.open(peer_);
    if (status.ok()) status = event.open(peer_, stream.get());
    if (!status.ok()) return status;
    status = copy(stream.get());
    const Status marked = peer_.record(event.get(), stream.get());
    const Status passed = marked.ok() ? peer_.wait(event.get()) : peer_.drain();
    return first_failure({status, marked, passed});
}

MEMSAVER_INLINE Status PeerStore::put(const std::byte* from, std::uint64_t location, std::size_t bytes) const noexcept {
    return on_peer([&](StreamRef stream) { return peer_.copy_to_device(location, from, bytes, stream); });
}

MEMSAVER_INLINE Status PeerStore::get(std::byte* to, std::uint64_t location, std::size_t bytes) const noexcept {
    return on_peer([&](StreamRef stream) { return peer_.copy_to_host(to, location, bytes, stream); });
}

MEMSAVER_INLINE std::shared_ptr<PeerPages> PeerStore::pages_of(std::uint64_t location) const {
    for (const auto& pages : pages_) {
        if (pages->address() <= location && location < pages->address() + pages->bytes()) return pages;
    }
    return {};
}

} // namespace detail

} // namespace memsaver::inline v0_3

// The machine of an attached tag: its shared block is backed by a publication's pages, mapped for reading; all else is
// as it is. And its policy: bytes of the shared block are never copied.
#pragma once

#include "memsaver/backup/host_backup.hpp"
#include "memsaver/core/function_ref.hpp"
#include "memsaver/core/vector.hpp"
#include "memsaver/driver/device_around.hpp"
#include "memsaver/driver/fork_check.hpp"
#include "memsaver/share/keeper.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace memsaver::inline v0_3::detail {

/// The arena of an attached tag has two blocks of a handle each: the shared one, whose handle is the only one of its
/// size, and that of the copies. Mapping the shared one maps the handles that the publication's descriptors name, one
/// after the other; a pause takes that away like any mapping, and a resume brings it back. The handles stay: the
/// descriptors keep the pages anyway.
class PublishedDevice final : public DeviceAround {
public:
    /// `share`: for the copies. `inner`: the device without the share around it, which counts what members hold.
    /// `parts`: the sizes of the publication's handles; their descriptors follow that of the manifest.
    PublishedDevice(AnyDriver share, AnyDriver inner, Keeper::Kept kept, Vector<std::size_t> parts)
        : DeviceAround{std::move(share)}, device_{std::move(inner)}, kept_{std::move(kept)}, parts_{std::move(parts)} {
        for (const std::size_t each : parts_) bytes_ += each;
        handles_.reserve(parts_.size());
    }
    ~PublishedDevice() override {
        if (!fork_.forked()) (void)close(); // else they are the parent's
    }
    /// Lets go of the pages: they go once they are unmapped. Returns the first failure; the next call does the rest.
    Status close() noexcept {
        for (; !handles_.empty(); handles_.pop_back())
            if (const Status status = device_.release(handles_.back()); !status.ok()) return status;
        kept_.reset();
        return {};
    }

    [[nodiscard]] std::size_t shared_bytes() const noexcept { return bytes_; }
    [[nodiscard]] bool is_shared(Range range) const noexcept {
        return range.address - address_.load() < bytes_ && address_.load() != 0;
    }

    [[nodiscard]] Features features() const noexcept override {
        Features features = DeviceAround::features();
        features.takes = false;
        features.host_addressable = false; // all that is written goes through the calls below
        return features;
    }
    Status take(std::size_t, PageHandle&, std::size_t&) noexcept override { return unsupported; }

    Status create(std::size_t bytes, PageHandle& pages) noexcept override {
        if (bytes != bytes_) return DeviceAround::create(bytes, pages);
        pages = all();
        return {};
    }
    Status release(PageHandle pages) noexcept override {
        return pages == all() ? unmap_some() : DeviceAround::release(pages);
    }
    Status map(Address address, std::size_t bytes, PageHandle pages) noexcept override {
        if (!(pages == all())) return DeviceAround::map(address, bytes, pages);
        Status status = some_.address == address ? Status{} : unmap_some();
        if (status.ok()) some_.address = address;
        std::size_t done = 0;
        for (std::size_t i = 0; status.ok() && i < parts_.size(); done += parts_[i], ++i) {
            if (PageHandle part; i == handles_.size()) {
                status = device_.import_pages(kept_->descriptors[i + 1].get(), part);
                if (status.ok()) handles_.push_back(part);
            }
            if (!status.ok() || done < some_.bytes) continue;
            status = device_.map(address + done, parts_[i], handles_[i]);
            if (status.ok()) some_.bytes += parts_[i];
        }
        if (!status.ok()) return status;
        some_ = {};
        address_.store(address);
        return {};
    }
    Status unmap(Address address, std::size_t bytes) noexcept override {
        return is_shared({address, bytes}) ? device_.unmap(address, bytes) : DeviceAround::unmap(address, bytes);
    }
    Status allow_access(Address address, std::size_t bytes, Rights rights) noexcept override {
        return is_shared({address, bytes}) ? device_.allow_access(address, bytes, Rights::read)
                                           : DeviceAround::allow_access(address, bytes, rights);
    }

    // A policy other than the tag's own, given for one pause, saves the shared bytes too, and brings back what is
    // there.

    Status copy_to_device(Address to, const void* host, std::size_t bytes, StreamRef stream) noexcept override {
        return outside({to, bytes}, [&](std::size_t skip, std::size_t count) {
            return DeviceAround::copy_to_device(to + skip, static_cast<const char*>(host) + skip, count, stream);
        });
    }
    Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) noexcept override {
        return is_shared({to, bytes}) ? Status{} : DeviceAround::fill(to, byte, bytes, stream); // by extents
    }
    Status copy_peer(Address to, Address from, std::size_t bytes, StreamRef stream) noexcept override {
        return outside({to, bytes}, [&](std::size_t skip, std::size_t count) {
            return DeviceAround::copy_peer(to + skip, from + skip, count, stream);
        });
    }
    Status copy_many(Direction direction, const CopyPart* parts, std::size_t count,
                     StreamRef stream) noexcept override {
        for (std::size_t i = 0; i < count; ++i)
            if (overlap({parts[i].to, parts[i].bytes}, shared())) return unsupported; // one by one
        return DeviceAround::copy_many(direction, parts, count, stream);
    }
    Status copy_by_kernel(Address to, Address from, std::size_t bytes, StreamRef stream) noexcept override {
        return overlap({to, bytes}, shared()) ? unsupported : DeviceAround::copy_by_kernel(to, from, bytes, stream);
    }

private:
    [[nodiscard]] PageHandle all() const noexcept { return {reinterpret_cast<std::uintptr_t>(this)}; }

    /// Takes away what a call of `map` has mapped that failed.
    Status unmap_some() noexcept {
        const Status status = some_.bytes == 0 ? Status{} : device_.unmap(some_.address, some_.bytes);
        if (status.ok()) some_ = {};
        return status;
    }
    [[nodiscard]] Range shared() const noexcept { return {address_.load(), address_.load() == 0 ? 0 : bytes_}; }
    /// Makes a write for those parts of a range that are not shared: so many bytes, after so many.
    Status outside(Range to, FunctionRef<Status(std::size_t, std::size_t)> write) noexcept {
        const Range inner = shared();
        if (!overlap(to, inner)) return write(0, to.bytes);
        Status status;
        if (to.address < inner.address) status = write(0, inner.address - to.address);
        if (status.ok() && inner.end() < to.end()) status = write(inner.end() - to.address, to.end() - inner.end());
        return status;
    }

    const ForkCheck fork_;
    const AnyDriver device_;
    Keeper::Kept kept_; // null after `close`
    const Vector<std::size_t> parts_;
    std::size_t bytes_ = 0;
    std::atomic<Address> address_{0}; // of the shared block, once it was mapped
    // By who holds the arena's turn:
    Vector<PageHandle> handles_; // of the first parts, as many as were imported
    Range some_{};               // the parts that were mapped when `map` failed; another call goes on behind them
};

/// Keeps the copies as HostBackup does. The shared bytes come back with their pages.
class PublishedSlot : private StoredSlot {
public:
    PublishedSlot(std::shared_ptr<PublishedDevice> device, const AnyDriver& driver)
        : StoredSlot{HostBackup{.threads = 1}.open(driver)}, device_{std::move(device)} {}

    void prepare(const LiveSet& live) {
        const LiveSet copies = of_copies(live);
        if (!copies.extents.empty()) StoredSlot::prepare(copies);
    }
    Ticket save(const LiveSet& live) {
        const LiveSet copies = of_copies(live);
        return copies.extents.empty() ? Ticket{} : StoredSlot::save(copies);
    }
    Ticket restore(const LiveSet& live) {
        const LiveSet copies = of_copies(live);
        return copies.extents.empty() ? Ticket{} : StoredSlot::restore(copies);
    }
    Status close() noexcept {
        const Status pages = device_->close();
        const Status copies = StoredSlot::close();
        return pages.ok() ? copies : pages;
    }
    using StoredSlot::backed_up_bytes;
    using StoredSlot::forget;
    using StoredSlot::invalidate;
    using StoredSlot::resumed;
    using StoredSlot::saved_in_part;
    using StoredSlot::view;
    using StoredSlot::write;

private:
    [[nodiscard]] LiveSet of_copies(const LiveSet& live) const {
        LiveSet copies = live;
        erase_in(copies.extents, [&](const Range& each) { return device_->is_shared(each); });
        copies.blocks = [blocks = live.blocks, device = device_] {
            std::vector<LiveBlock> all = blocks();
            erase_in(all, [&](const LiveBlock& each) { return device->is_shared({each.address, each.bytes}); });
            return all;
        };
        return copies;
    }

    std::shared_ptr<PublishedDevice> device_;
};

struct PublishedPolicy {
    std::shared_ptr<PublishedDevice> device;

    [[nodiscard]] std::string_view name() const noexcept { return "published"; }
    [[nodiscard]] PublishedSlot open(const AnyDriver& driver) const { return {device, driver}; }
    friend bool operator==(const PublishedPolicy&, const PublishedPolicy&) = default;
};
static_assert(Backup<PublishedPolicy>);

} // namespace memsaver::inline v0_3::detail

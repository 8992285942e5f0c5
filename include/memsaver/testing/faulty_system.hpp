// The part of FaultyDriver that forwards calls concerning the system around the device: lanes, pools, host pages and
// files. FaultyBase injects failures and tracks resources.
#pragma once

#include "memsaver/driver/concepts.hpp"
#include "memsaver/testing/call_log.hpp"
#include "memsaver/testing/faulty_base.hpp"

#include <cstddef>

namespace memsaver::inline v0_3 {

/// The part of FaultyDriver for the system around the device: lanes, owners, pools, host pages and files. Each method
/// exists if the wrapped driver has it.
template <Driver D>
class FaultySystem : public FaultyBase<D> {
public:
    using FaultyBase<D>::inner;

    /// Whether the wrapped driver has `owns_event`.
    static constexpr bool owns_events = requires(const D d, EventRef event, bool& yes) { d.owns_event(event, yes); };

    Status lane(Direction direction, StreamRef& stream) const noexcept requires Lanes<D> {
        return call({.call = Call::lane}, [&](CallRecord& made) {
            const Status status = inner().lane(direction, stream);
            if (status.ok()) made.stream = stream;
            return status;
        });
    }

    [[nodiscard]] Neighbours* neighbours() const noexcept requires Shared<D> { return inner().neighbours(); }

    /// Neither counted nor failed, because it cannot fail.
    void name_addresses(Address address, std::size_t bytes, const char* name) const noexcept requires Named<D> {
        inner().name_addresses(address, bytes, name);
    }

    Status owns_stream(StreamRef stream, bool& yes) const noexcept requires StreamOwners<D> {
        return call({.call = Call::owns_stream, .stream = stream},
                    [&](CallRecord&) { return inner().owns_stream(stream, yes); });
    }
    /// Counts and fails as `Call::owns_stream`, because it has no call kind of its own.
    Status owns_event(EventRef event, bool& yes) const noexcept requires owns_events {
        return call({.call = Call::owns_stream, .event = event},
                    [&](CallRecord&) { return inner().owns_event(event, yes); });
    }
    Status pool_memory(PoolRef pool, std::size_t& bytes) const noexcept requires Trims<D> {
        return call({.call = Call::pool_memory}, [&](CallRecord&) { return inner().pool_memory(pool, bytes); });
    }
    Status trim_pool(PoolRef pool, std::size_t keep) const noexcept requires Trims<D> {
        return call({.call = Call::trim_pool, .bytes = keep},
                    [&](CallRecord&) { return inner().trim_pool(pool, keep); });
    }

    Status map_host(std::size_t bytes, void*& pages) const noexcept requires HostPages<D> {
        return call({.call = Call::map_host, .bytes = bytes}, [&](CallRecord& made) {
            const Status status = inner().map_host(bytes, pages);
            if (status.ok()) made.host = pages;
            return status;
        });
    }
    Status unmap_host(void* pages, std::size_t bytes) const noexcept requires HostPages<D> {
        return call({.call = Call::unmap_host, .bytes = bytes, .host = pages},
                    [&](CallRecord&) { return inner().unmap_host(pages, bytes); });
    }
    Status populate_host(void* pages, std::size_t bytes) const noexcept requires HostPages<D> {
        return call({.call = Call::populate_host, .bytes = bytes, .host = pages},
                    [&](CallRecord&) { return inner().populate_host(pages, bytes); });
    }
    Status pin_host(void* pages, std::size_t bytes) const noexcept requires HostPages<D> {
        return call({.call = Call::pin_host, .bytes = bytes, .host = pages},
                    [&](CallRecord&) { return inner().pin_host(pages, bytes); });
    }
    Status unpin_host(void* pages) const noexcept requires HostPages<D> {
        return call({.call = Call::unpin_host, .host = pages}, [&](CallRecord&) { return inner().unpin_host(pages); });
    }
    Status host_available(std::size_t& bytes) const noexcept requires HostPages<D> {
        return call({.call = Call::host_available}, [&](CallRecord&) { return inner().host_available(bytes); });
    }

    Status open_file(const char* directory, FileRef& file) const noexcept requires Files<D> {
        return call({.call = Call::open_file}, [&](CallRecord& made) {
            const Status status = inner().open_file(directory, file);
            if (status.ok()) made.file = file;
            return status;
        });
    }
    Status close_file(FileRef file) const noexcept requires Files<D> {
        return call({.call = Call::close_file, .file = file}, [&](CallRecord&) { return inner().close_file(file); });
    }
    Status write_file(FileRef file, const void* from, std::size_t bytes,
                      std::size_t offset) const noexcept requires Files<D> {
        return call({.call = Call::write_file, .bytes = bytes, .host = from, .file = file, .offset = offset},
                    [&](CallRecord&) { return inner().write_file(file, from, bytes, offset); });
    }
    Status read_file(FileRef file, void* to, std::size_t bytes, std::size_t offset) const noexcept requires Files<D> {
        return call({.call = Call::read_file, .bytes = bytes, .host = to, .file = file, .offset = offset},
                    [&](CallRecord&) { return inner().read_file(file, to, bytes, offset); });
    }
    Status allocate_file(FileRef file, std::size_t offset, std::size_t bytes) const noexcept requires Files<D> {
        return call({.call = Call::allocate_file, .bytes = bytes, .file = file, .offset = offset},
                    [&](CallRecord&) { return inner().allocate_file(file, offset, bytes); });
    }
    Status punch_file(FileRef file, std::size_t offset, std::size_t bytes) const noexcept requires Files<D> {
        return call({.call = Call::punch_file, .bytes = bytes, .file = file, .offset = offset},
                    [&](CallRecord&) { return inner().punch_file(file, offset, bytes); });
    }
    Status open_source(const char* path, bool direct, FileRef& file) const noexcept requires Sources<D> {
        return call({.call = Call::open_source}, [&](CallRecord& made) {
            const Status status = inner().open_source(path, direct, file);
            if (status.ok()) made.file = file;
            return status;
        });
    }
    Status file_facts(FileRef file, FileFacts& facts) const noexcept requires Sources<D> {
        return call({.call = Call::file_facts, .file = file},
                    [&](CallRecord&) { return inner().file_facts(file, facts); });
    }
    Status file_cached(FileRef file, std::size_t bytes, std::size_t offset,
                       bool& yes) const noexcept requires Sources<D> {
        return call({.call = Call::file_cached, .bytes = bytes, .file = file, .offset = offset},
                    [&](CallRecord&) { return inner().file_cached(file, bytes, offset, yes); });
    }

protected:
    using FaultyBase<D>::FaultyBase;
    using FaultyBase<D>::call;
};

} // namespace memsaver::inline v0_3

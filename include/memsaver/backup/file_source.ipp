// Definitions of file_source.hpp.
#pragma once

#include "memsaver/backup/file_source.hpp"
#include "memsaver/backup/policy_options.hpp"
#include "memsaver/backup/source_store.hpp"

#include <memory>
#include <string>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE std::string FileSource::describe() const {
    return detail::text_of({"threads ", detail::in_digits(threads), ", ring ", detail::in_bytes(ring_bytes),
                            retain ? ", retained" : ", not retained",
                            executor ? ", custom executor" : ", no executor"});
}

MEMSAVER_INLINE FileSource FileSource::normalized() const {
    detail::require_threads("FileSource", threads);
    detail::require_ring("FileSource", ring_bytes);
    return *this;
}

MEMSAVER_INLINE detail::SourceSlot FileSource::open(const AnyDriver& driver) const {
    const detail::StoreOptions options{{threads, executor, driver.numa_node()}, ring_bytes, {}};
    return {std::make_shared<detail::SourceStore>(driver, options), retain};
}

} // namespace memsaver::inline v0_3

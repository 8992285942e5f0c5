// Definitions of compressed.hpp.
#pragma once

#include "memsaver/backup/compressed.hpp"
#include "memsaver/backup/host_codec.hpp"
#include "memsaver/backup/nvcomp_codec.hpp"
#include "memsaver/core/error.hpp"

#include <memory>

namespace memsaver::inline v0_3 {

namespace detail {

inline std::shared_ptr<const Codec> codec_for(const AnyDriver& driver, Coding coding) {
    if (driver.host_addressable()) return std::make_shared<HostCodec>(driver);
    if (driver.with_context([] {}).kind != StatusKind::unsupported)
        return std::make_shared<NvcompCodec>(driver, coding);
    unavailable({"Compressed: no codec supports ", driver.name(),
                 "; its driver has neither `with_context`, for nvCOMP, nor `host_addressable`"});
}

} // namespace detail

} // namespace memsaver::inline v0_3

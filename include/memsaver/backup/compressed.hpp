// A policy that wraps another policy and compresses the bytes on the device. Loads its codec at run time.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/backup/codec.hpp"
#include "memsaver/backup/coded_store.hpp"
#include "memsaver/backup/host_codec.hpp"
#include "memsaver/backup/nvcomp_codec.hpp"
#include "memsaver/backup/policy.hpp"
#include "memsaver/backup/policy_options.hpp"
#include "memsaver/backup/stored_slot.hpp"
#include "memsaver/core/error.hpp"
#include "memsaver/core/sizes.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace memsaver::inline v0_3 {

namespace detail {

/// Returns the codec for a driver: nvCOMP's ANS if the driver runs CUDA, HostCodec if the host can address the device's
/// memory. Throws Unavailable, with what to install, if the codec's library is missing, and for any other driver.
inline std::shared_ptr<const Codec> codec_for(const AnyDriver& driver, Coding coding) {
    if (driver.host_addressable()) return std::make_shared<HostCodec>(driver);
    if (driver.with_context([] {}).kind != StatusKind::unsupported)
        return std::make_shared<NvcompCodec>(driver, coding);
    unavailable({"Compressed: no codec supports ", driver.name(),
                 "; its driver has neither `with_context`, for nvCOMP, nor `host_addressable`"});
}

} // namespace detail

/// Wraps HostBackup, FileBackup, or Verified of either, as in `Compressed<HostBackup>{}`. Behaves like the wrapped
/// policy, but bytes cross the link and are kept in compressed (coded) form, without loss. bf16 weights shrink to about
/// two thirds. Bytes are coded in chunks of up to 1 MiB; a chunk that does not shrink is kept uncoded. If the checksum
/// of a coded chunk is wrong, the resume throws BackupDamaged and the tag stays paused.
///
/// The codec is nvCOMP 6 on CUDA (ANS; `pip install nvidia-libnvcomp-cu13`) and a simple one of memsaver's own on a
/// HostDriver. nvCOMP is loaded when an arena is made. If it is missing, Unavailable says how to get it.
///
/// Coding needs device memory: slightly more than `pieces * piece_bytes`, less for smaller tags. `prepare` or the pause
/// allocates it, and the pause releases it when everything is paused. If the device has too little free memory, the
/// pause saves bytes uncoded and reports that once to the saver's event sink. A resume allocates the memory together
/// with the pages; `bytes_to_resume` counts it. After a resume it is kept for the next pause, unless the policy saves
/// once or does not retain; `trim` releases it. `usage` counts it as mapped.
template <class P>
struct Compressed {
    P policy{};
    Coding coding = Coding::halves;
    /// Size of a piece, the bytes coded by one call: from 1 MiB to 1 GiB.
    std::size_t piece_bytes = 32_MiB;
    /// Number of pieces in flight, 1 to 1024: while one is coded, others are copied. Each has a thread, at most as
    /// many as the wrapped policy's `threads`. While host memory is allocated, the wrapped policy's threads run in
    /// addition.
    unsigned pieces = 4;

    /// See HostBackup::normalized; of the wrapped policy too.
    [[nodiscard]] Compressed normalized() const {
        detail::require_enumerator("Compressed::coding", coding, 2);
        if (piece_bytes < 1_MiB || piece_bytes > 1_GiB)
            detail::refuse_option("Compressed::piece_bytes", format_bytes(piece_bytes), "1.00 MiB to 1.00 GiB");
        if (pieces < 1 || pieces > detail::most_threads) {
            detail::refuse_option("Compressed::pieces", std::to_string(pieces),
                                  "1 to " + std::to_string(detail::most_threads));
        }
        return {detail::normalized(policy), coding, piece_bytes, pieces};
    }

    [[nodiscard]] std::string_view name() const noexcept { return "compressed"; }
    /// Returns the name and options of the wrapped policy and its own options: "of host, pinned, ..., coded as halves,
    /// ...".
    [[nodiscard]] std::string describe() const {
        const AnyPolicy inside{policy};
        return detail::text_of({"of ", inside.name(), ", ", inside.describe(),
                                coding == Coding::halves ? ", coded as halves" : ", coded as bytes", ", pieces ",
                                detail::in_digits(pieces), " of ", detail::in_bytes(piece_bytes)});
    }

    /// `observer` is set by policies that wrap this one. Throws Unavailable if the codec is missing.
    [[nodiscard]] detail::StoredSlot open(const AnyDriver& driver,
                                          std::shared_ptr<detail::PieceObserver> observer = {}) const {
        const detail::CodedOptions coded{detail::codec_for(driver, coding), piece_bytes, pieces};
        return policy.open(
            driver, std::move(observer),
            detail::AroundStore{[&](std::shared_ptr<detail::BackupStore> inside, const detail::StoreOptions& options) {
                return std::make_shared<detail::CodedStore>(driver, std::move(inside), options, coded);
            }});
    }

    friend bool operator==(const Compressed&, const Compressed&) = default;
};

} // namespace memsaver::inline v0_3

#include "memsaver/core/macros_on.hpp"

// A policy around a policy: bytes are coded on the device, and kept coded. Loads its codec at run time.
#pragma once

#include "memsaver/backup/codec.hpp"
#include "memsaver/backup/coded_store.hpp"
#include "memsaver/backup/policy.hpp"
#include "memsaver/backup/stored_slot.hpp"
#include "memsaver/core/sizes.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace memsaver::inline v0_2 {

namespace detail {

/// The codec for a driver: nvCOMP's ANS where the driver runs CUDA, LZ4 where the device's memory is the host's. Throws
/// Unavailable, with what to install, if its library is missing, and for drivers that have neither.
inline std::shared_ptr<const Codec> codec_for(const AnyDriver& driver, Coding coding);

} // namespace detail

/// `Compressed<HostBackup>{}`, or around FileBackup, or Verified of either: as the policy inside, and bytes cross the
/// link and are kept coded, without loss. Of bf16 weights two thirds remain. What does not shrink stays as it is, in
/// parts of 1 MiB. A coded part whose checksum is wrong is BackupDamaged at the resume, and the tag stays paused.
///
/// On CUDA nvCOMP 6 codes (ANS; `pip install nvidia-libnvcomp-cu13`), on a HostDriver LZ4 (liblz4.so.1). They are
/// loaded when an arena is made; Unavailable says how to get what is missing.
///
/// Coding takes device memory: about `pieces * piece_bytes`, and a little more; less for tags that are smaller. It is
/// taken by `prepare`, or by the pause, which saves bytes as they are where there is no room (told once to the saver's
/// event sink), and given back when everything is away. A resume takes it with the pages: `bytes_to_resume` counts it.
/// After a resume it is kept for the next pause, unless the policy saves once or does not retain; `trim` gives it back.
/// `usage` counts it as mapped.
template <class P>
struct Compressed {
    P policy{};
    Coding coding = Coding::halves;
    /// Coded at once, from 1 MiB to 1 GiB.
    std::size_t piece_bytes = 32_MiB;
    /// Under way at the same time: while one is coded, others are on the link. At least 1. Each has a thread, at most
    /// as many as the policy inside has; while host memory is taken, those are at work beside them.
    unsigned pieces = 4;

    [[nodiscard]] std::string_view name() const noexcept { return "compressed"; }
    /// The name and the options of the policy inside, and its own: "of host, pinned, ..., coded as halves, ...".
    [[nodiscard]] std::string describe() const {
        const AnyPolicy inside{policy};
        return "of " + std::string{inside.name()} + ", " + inside.describe() +
               (coding == Coding::halves ? ", coded as halves" : ", coded as bytes") + ", pieces " +
               std::to_string(pieces) + " of " + format_bytes(piece_bytes);
    }

    /// `observer` is for the policies around this one. Throws Unavailable where the codec is missing.
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

} // namespace memsaver::inline v0_2

#include "memsaver/backup/compressed.ipp"

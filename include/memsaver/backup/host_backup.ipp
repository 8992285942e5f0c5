// Definitions of host_backup.hpp.
#pragma once

#include "memsaver/backup/host_backup.hpp"
#include "memsaver/backup/host_store.hpp"
#include "memsaver/backup/policy_options.hpp"

#include <chrono>
#include <utility>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE std::string HostBackup::describe() const {
    std::string text = detail::text_of(
        {storage == Storage::pinned ? "pinned" : "pageable",
         refresh == Refresh::once ? ", saved once" : ", saved at every pause", retain ? ", retained" : ", not retained",
         check ? ", checked" : ", not checked", ", threads ", detail::in_digits(threads), ", ring ",
         detail::in_bytes(ring_bytes), executor ? ", custom executor" : ", no executor"});
    if (kernel_copies.after <= std::chrono::nanoseconds{}) return text + ", no copies by a kernel";
    const auto after = std::chrono::duration_cast<std::chrono::microseconds>(*kernel_copies.after).count();
    return detail::text_of({text, ", copies of ", detail::in_bytes(kernel_copies.least_bytes), " by a kernel after ",
                            detail::in_digits(after), " us"});
}

MEMSAVER_INLINE HostBackup HostBackup::normalized() const {
    detail::require_enumerator("HostBackup::storage", storage, 2);
    detail::require_sense("HostBackup", refresh, retain, check);
    detail::require_crew("HostBackup", threads, ring_bytes);
    if (kernel_copies.after && *kernel_copies.after < std::chrono::nanoseconds{}) {
        detail::misuse({"KernelCopyOptions::after is ", detail::in_digits(kernel_copies.after->count()),
                        " ns; valid: 0, for no copies by a kernel, or more"});
    }
    if (!(kernel_copies.slower >= 0)) {
        detail::refuse_option("KernelCopyOptions::slower", std::to_string(kernel_copies.slower),
                              "0, for no such test, or more");
    }
    return *this;
}

MEMSAVER_INLINE std::string_view HostBackup::name() const noexcept {
    if (refresh == Refresh::once) return storage == Storage::pinned ? "host, once" : "host pageable, once";
    return storage == Storage::pinned ? "host" : "host pageable";
}

MEMSAVER_INLINE detail::StoredSlot HostBackup::open(const AnyDriver& driver,
                                                    std::shared_ptr<detail::PieceObserver> observer,
                                                    const detail::AroundStore& around) const {
    detail::StoreOptions options{
        {threads, executor, driver.numa_node()}, ring_bytes, std::move(observer), kernel_copies};
    if (driver.features().asks) options.kernel_copies.after = std::chrono::nanoseconds{};
    std::shared_ptr<detail::BackupStore> store =
        detail::new_shared<detail::HostStore>(driver, storage == Storage::pinned, options);
    if (around) store = around(std::move(store), options);
    return {std::move(store), {refresh, retain, check}};
}

} // namespace memsaver::inline v0_3

// Definitions of file_backup.hpp.
#pragma once

#include "memsaver/backup/file_backup.hpp"
#include "memsaver/backup/file_store.hpp"
#include "memsaver/backup/policy_options.hpp"
#include "memsaver/driver/system.hpp"

#include <utility>

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE std::string FileBackup::describe() const {
    return detail::text_of({"directory ", directory,
                            refresh == Refresh::once ? ", saved once" : ", saved at every pause",
                            retain ? ", retained" : ", not retained", check ? ", checked" : ", not checked",
                            ", threads ", detail::in_digits(threads), ", ring ", detail::in_bytes(ring_bytes),
                            executor ? ", custom executor" : ", no executor"});
}

MEMSAVER_INLINE FileBackup FileBackup::normalized() const {
    detail::require_sense("FileBackup", refresh, retain, check);
    detail::require_crew("FileBackup", threads, ring_bytes);
    FileBackup kept = *this;
    kept.directory = detail::absolute_path(directory);
    return kept;
}

MEMSAVER_INLINE detail::StoredSlot FileBackup::open(const AnyDriver& driver,
                                                    std::shared_ptr<detail::PieceObserver> observer,
                                                    const detail::AroundStore& around) const {
    if (directory.empty()) detail::misuse({"FileBackup: .directory is empty; set it to the directory of the file"});
    if (const Status status = detail::SystemFiles::may_write_in(directory.c_str()); !status.ok())
        raise(status, "use the directory of a FileBackup", directory); // not at the first pause
    detail::StoreOptions options{{threads, executor, driver.numa_node()}, ring_bytes, std::move(observer)};
    std::shared_ptr<detail::BackupStore> store = detail::new_shared<detail::FileStore>(driver, directory, options);
    if (around) store = around(std::move(store), options);
    return {std::move(store), {refresh, retain, check}};
}

} // namespace memsaver::inline v0_3

// Definitions of peer_backup.hpp.
#pragma once

#include "memsaver/backup/peer_backup.hpp"
#include "memsaver/backup/peer_store.hpp"
#include "memsaver/backup/policy_options.hpp"

namespace memsaver::inline v0_3 {

MEMSAVER_INLINE std::string PeerBackup::describe() const {
    return detail::text_of({"on ", peer.name(), refresh == Refresh::once ? ", saved once" : ", saved at every pause",
                            retain ? ", retained" : ", freed at every resume", check ? ", checked" : ""});
}

MEMSAVER_INLINE PeerBackup PeerBackup::normalized() const {
    detail::require_sense("PeerBackup", refresh, retain, check);
    return *this;
}

MEMSAVER_INLINE std::string_view PeerBackup::name() const noexcept {
    return refresh == Refresh::once ? "peer, once" : "peer";
}

MEMSAVER_INLINE detail::StoredSlot PeerBackup::open(const AnyDriver& driver) const {
    if (peer == driver || peer.device() == driver.device()) {
        detail::misuse({"PeerBackup: ", peer.name(), " is the tag's own device; pass another one"});
    }
    return {detail::new_shared<detail::PeerStore>(driver, peer, detail::StoreOptions{}), {refresh, retain, check}};
}

} // namespace memsaver::inline v0_3

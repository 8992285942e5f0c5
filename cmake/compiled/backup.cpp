// One of the files that memsaver::compiled is made of: the definitions of backup/. Written by
// cmake/checks/check_tree.py --write-compiled.
#include "memsaver/backup/backup.hpp"

#include "memsaver/backup/copy_lane.ipp"
#include "memsaver/backup/crew.ipp"
#include "memsaver/backup/discard.ipp"
#include "memsaver/backup/file_backup.ipp"
#include "memsaver/backup/host_backup.ipp"
#include "memsaver/backup/pieces.ipp"
#include "memsaver/backup/pinned_transfer.ipp"
#include "memsaver/backup/policy.ipp"
#include "memsaver/backup/ring_transfer.ipp"
#include "memsaver/backup/store.ipp"
#include "memsaver/backup/stored_slot.ipp"
#include "memsaver/backup/ticket.ipp"

// The definitions of backup/, for one file of a program: see memsaver/impl.hpp. Written by
// cmake/checks/check_tree.py --write-compiled.
#pragma once

#include "memsaver/backup/backup.hpp"

#include "memsaver/backup/backup_index.ipp"
#include "memsaver/backup/copy_lane.ipp"
#include "memsaver/backup/crew.ipp"
#include "memsaver/backup/device_scratch.ipp"
#include "memsaver/backup/discard.ipp"
#include "memsaver/backup/file_backup.ipp"
#include "memsaver/backup/file_source.ipp"
#include "memsaver/backup/file_store.ipp"
#include "memsaver/backup/host_backup.ipp"
#include "memsaver/backup/host_share.ipp"
#include "memsaver/backup/host_store.ipp"
#include "memsaver/backup/peer_backup.ipp"
#include "memsaver/backup/peer_store.ipp"
#include "memsaver/backup/pieces.ipp"
#include "memsaver/backup/policy.ipp"
#include "memsaver/backup/policy_options.ipp"
#include "memsaver/backup/source_files.ipp"
#include "memsaver/backup/source_slot.ipp"
#include "memsaver/backup/source_store.ipp"
#include "memsaver/backup/store.ipp"
#include "memsaver/backup/stored_slot.ipp"
#include "memsaver/backup/ticket.ipp"
#include "memsaver/backup/transfer.ipp"

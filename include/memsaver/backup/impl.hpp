// The definitions of backup/, for one file of a program: see memsaver/impl.hpp.
#pragma once

#include "memsaver/backup/backup.hpp"

#include "memsaver/backup/discard.ipp"
#include "memsaver/backup/file_backup.ipp"
#include "memsaver/backup/file_source.ipp"
#include "memsaver/backup/host_backup.ipp"
#include "memsaver/backup/peer_backup.ipp"
#include "memsaver/backup/policy.ipp"
#include "memsaver/backup/stored_slot.ipp"
#include "memsaver/backup/ticket.ipp"

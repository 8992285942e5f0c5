// How bytes move and where they are kept while their pages are away. Do not know arenas.
#pragma once

#include "memsaver/backup/copy_lane.hpp"
#include "memsaver/backup/crew.hpp"
#include "memsaver/backup/discard.hpp"
#include "memsaver/backup/file_backup.hpp"
#include "memsaver/backup/host_backup.hpp"
#include "memsaver/backup/pieces.hpp"
#include "memsaver/backup/pinned_transfer.hpp"
#include "memsaver/backup/policy.hpp"
#include "memsaver/backup/ring_transfer.hpp"
#include "memsaver/backup/store.hpp"
#include "memsaver/backup/stored_slot.hpp"
#include "memsaver/backup/ticket.hpp"

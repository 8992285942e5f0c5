// The door of backup/: policies for the bytes of paused memory. They do not know arenas.
#pragma once

#include "memsaver/backup/any_backup.hpp"
#include "memsaver/backup/backup_concept.hpp"
#include "memsaver/backup/discard.hpp"
#include "memsaver/backup/file_backup.hpp"
#include "memsaver/backup/host_backup.hpp"
#include "memsaver/backup/spent_slots.hpp"
#include "memsaver/backup/zero.hpp"

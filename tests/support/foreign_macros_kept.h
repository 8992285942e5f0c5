/* Checks that the macros of foreign_macros.h that the library removes for its own headers are back. */
#pragma once

#if !defined(Region) || !defined(Status) || !defined(emit) || !defined(max) || !defined(min) || !defined(slots)
#error "a macro was not restored"
#endif
#if max(2, min(3, 4)) != 3 || None != 0L || Success != 0 || True != 1 || False != 0 || Always != 2
#error "a macro has another value"
#endif

static Status status_after_headers = 0; /* a type again */

static int foreign_macros_kept(void);
static int foreign_macros_kept(void) { emit return status_after_headers == max(-1, 0); }

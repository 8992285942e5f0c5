/* Macros that headers of other libraries define under names that a program might use too: X11, Qt, Windows, ncurses,
   <sys/param.h>. Include it before the library's headers, and `still_there` after them. */
#pragma once

/* X11/X.h, X11/Xlib.h, X11/Xutil.h and extensions */
#define Above 0
#define Always 2
#define Bool int
#define Complex 0
#define Convex 2
#define DestroyAll 0
#define Expose 12
#define False 0
#define FocusIn 9
#define GrayScale 1
#define IsViewable 2
#define KeyPress 2
#define None 0L
#define Region unsigned
#define Status int
#define Success 0
#define True 1
#define Unsorted 0
#define XYPixmap 1

/* Windows */
#define DELETE 0x10000L
#define ERROR 0
#define IN
#define NO_ERROR 0L
#define OPTIONAL
#define OUT
#define STRICT 1
#define far
#define interface struct
#define max(a, b) (((a) > (b)) ? (a) : (b))
#define min(a, b) (((a) < (b)) ? (a) : (b))

/* Qt */
#define emit
#define foreach not_defined_here
#define forever for (;;)
#define signals public
#define slots

/* ncurses, glog, <sys/param.h> */
#define CHECK(what) (void)(what)
#define ERR (-1)
#define LOG(what) (void)(what)
#define MAX(a, b) (((a) > (b)) ? (a) : (b))
#define MIN(a, b) (((a) < (b)) ? (a) : (b))
#define OK 0

/* Functions that an archive compiled with a newer glibc needs, under their names in that glibc.
 *
 * Compile this file as C99: for later standards the headers of glibc use the new names. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

long __isoc23_strtol(const char *s, char **end, int base) { return strtol(s, end, base); }

long long __isoc23_strtoll(const char *s, char **end, int base) { return strtoll(s, end, base); }

int __isoc23_sscanf(const char *s, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int found = vsscanf(s, format, arguments);
    va_end(arguments);
    return found;
}

/* Errors of MPI, and whether it can still be ended. */
#define _GNU_SOURCE
#include "transport/wire/mpi/wire_mpi.h"
#include "weft.h"

static bool trouble; /* some rank may be gone */

void wire_mpi_error_trouble(void)
{
    trouble = true;
}

bool wire_mpi_error_troubled(void)
{
    return trouble;
}

int wire_mpi_error(const struct wire *w, int code, const char *what, int peer)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length, kind = MPI_ERR_OTHER;
    MPI_Error_class(code, &kind);
    MPI_Error_string(code, text, &length);
    return w->error(kind == MPI_ERR_TRUNCATE ? WEFT_EMISMATCH : WEFT_ETRANSPORT, "%s rank %d: %s", what, peer, text);
}

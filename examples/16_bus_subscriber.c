/* The other one of two programs, see 16_bus_publisher.c: it works with the newest version that it has, while the next
 * one comes in the background. Each version is compared element by element. */
#include <stdio.h>
#include <stdlib.h>

#include <weft/bus.h>

#define ROWS 48
#define COLUMNS 64
#define SECOND 1000000000LL

static void must(int err)
{
    if (err) {
        fprintf(stderr, "%s\n", weft_errmsg());
        exit(1);
    }
}

/* What stands for a server's work: all elements of the live version are right. Returns its step. */
static int64_t use(weft_subscriber *subscriber)
{
    weft_pin *pin;
    const void *data;
    must(weft_use(subscriber, &pin)); /* the version does not change until it is given back */
    must(weft_pin_data(pin, 0, &data, NULL));
    int64_t step = weft_pin_version(pin).step;
    const float *grid = data;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        if (grid[i] != (float)((step + i) % 200)) {
            fprintf(stderr, "step %lld, element %d: %g\n", (long long)step, i, (double)grid[i]);
            exit(1);
        }
    weft_unuse(pin);
    return step;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : "file:/tmp/weft-run42";
    int64_t last = argc > 2 ? atoll(argv[2]) : 100, step = 0, used = 0;
    int versions = 0;
    weft_bus *bus;
    weft_layout *layout;
    weft_subscriber *subscriber;
    must(weft_bus_open(url, NULL, &bus));
    must(weft_layout_parse("f32[48,64] @x1", &layout)); /* cast from bf16 as it is read */
    weft_bus_tensor tensor = {.name = "grid", .layout = layout};
    must(weft_subscribe(bus, "field", &tensor, 1, NULL, &subscriber));
    weft_layout_free(layout);
    while (step < last) {
        weft_fetching *fetching;
        weft_epoch_step version;
        bool over = false;
        must(weft_fetch_start(subscriber, &(weft_want){WEFT_WANT_NEWER, 0}, 60 * SECOND, &fetching));
        while (!over) { /* work goes on */
            if (versions)
                used += use(subscriber) > 0;
            else
                weft_fetching_wait(fetching, SECOND / 10, NULL);
            must(weft_fetching_test(fetching, &over, NULL, NULL));
        }
        must(weft_fetching_wait(fetching, 0, &version));
        weft_fetching_free(fetching);
        must(weft_swap(subscriber, &version, SECOND));
        versions++;
        step = use(subscriber);
    }
    printf("step %lld is live, all versions right\n", (long long)step);
    fprintf(stderr, "%d versions, used %lld times meanwhile\n", versions, (long long)used);
    weft_subscriber_close(subscriber);
    must(weft_bus_close(bus));
    return 0;
}

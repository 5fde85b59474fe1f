/* Something to do for a compiler: functions that are all different, and depend on each other. */

#define JOIN3(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOIN3(a, b, c)
#define NAME(n) JOIN(work, UNIT, n)

struct table {
	unsigned long keys[16];
	unsigned char marks[64];
};

unsigned long JOIN(work, UNIT, first)(struct table *table, unsigned long seed);

#define FUNCTION(n, before)                                                                                        \
	unsigned long NAME(n)(struct table *table, unsigned long seed);                                            \
	unsigned long NAME(n)(struct table *table, unsigned long seed)                                             \
	{                                                                                                          \
		unsigned long sum = seed * (2 * n##u + 1) + UNIT;                                                  \
		unsigned int index;                                                                                \
		for (index = 0; index < 16; index++) {                                                             \
			switch ((sum >> index) & 7) {                                                              \
			case 0: sum ^= table->keys[index] << (n##u % 13); break;                                   \
			case 1: sum += table->marks[index * 4] * n##u; break;                                      \
			case 2: table->keys[index] = sum; break;                                                   \
			case 3: table->marks[index + 3] ^= (unsigned char)sum; break;                              \
			case 4: sum = (sum << 7) | (sum >> 25); break;                                             \
			case 5: sum -= before(table, sum / 3); break;                                              \
			default: sum = sum * 33 + table->keys[(index + n##u) % 16];                                \
			}                                                                                          \
		}                                                                                                  \
		return sum;                                                                                        \
	}

unsigned long NAME(first)(struct table *table, unsigned long seed)
{
	return table->keys[seed % 16] + seed;
}

#define TEN(n, before)                                                                                             \
	FUNCTION(n##0, before)                                                                                     \
	FUNCTION(n##1, NAME(n##0))                                                                                 \
	FUNCTION(n##2, NAME(n##1))                                                                                 \
	FUNCTION(n##3, NAME(n##2))                                                                                 \
	FUNCTION(n##4, NAME(n##3))                                                                                 \
	FUNCTION(n##5, NAME(n##4))                                                                                 \
	FUNCTION(n##6, NAME(n##5))                                                                                 \
	FUNCTION(n##7, NAME(n##6))                                                                                 \
	FUNCTION(n##8, NAME(n##7))                                                                                 \
	FUNCTION(n##9, NAME(n##8))

TEN(1, NAME(first))

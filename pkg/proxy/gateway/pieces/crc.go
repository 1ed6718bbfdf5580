package pieces

// Checksums of gzip are remainders of polynomials over GF(2): the text, read as
// the coefficients of one, modulo the polynomial of IEEE 802.3, the coefficient
// of x^0 in the highest bit. To append n bytes multiplies by x^8n.

const polynomial = 0xedb88320 // without x^32

// multiply is the product of two remainders.
func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		if a&(1<<31) != 0 {
			product ^= b
		}
		b = timesX(b)
	}
	return product
}

func timesX(b uint32) uint32 {
	if b&1 != 0 {
		return b>>1 ^ polynomial
	}
	return b >> 1
}

// shiftOf is x^8n.
func shiftOf(n int) uint32 {
	power, factor := uint32(1<<31), uint32(1<<23) // 1 and x^8
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			power = multiply(power, factor)
		}
		factor = multiply(factor, factor)
	}
	return power
}

// combine is the checksum of two texts, one after the other: shift is that of
// the second's length.
func combine(first, second, shift uint32) uint32 { return multiply(shift, first) ^ second }

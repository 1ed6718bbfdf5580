package pieces

import (
	"bytes"
	stdgzip "compress/gzip"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	kgzip "github.com/klauspost/compress/gzip"
	"pgregory.net/rapid"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// fakePack has an identity, which is all that the cache looks at.
type fakePack struct {
	cache.Pack
	id *cache.PackID
}

func (p fakePack) ID() *cache.PackID { return p.id }

func newPack() fakePack { return fakePack{id: new(cache.PackID)} }

func constant(text string) func([]byte) ([]byte, error) {
	return func(dst []byte) ([]byte, error) { return append(dst, text...), nil }
}

func never(t testing.TB) func([]byte) ([]byte, error) {
	t.Helper()
	return func([]byte) ([]byte, error) {
		t.Helper()
		t.Error("a piece that is kept is made again")
		return nil, nil
	}
}

func mustGet(t rapid.TB, c *Cache, p cache.Pack, packing Packing, text string) *Piece {
	t.Helper()
	piece, err := c.Get(p, "form", packing, constant(text))
	if err != nil {
		t.Fatal(err)
	}
	return piece
}

// TestCombine: the checksum of two texts is made of those of each.
func TestCombine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "a")
		b := rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "b")
		want := crc32.ChecksumIEEE(append(bytes.Clone(a), b...))
		if got := combine(crc32.ChecksumIEEE(a), crc32.ChecksumIEEE(b), shiftOf(len(b))); got != want {
			t.Fatalf("%08x instead of %08x", got, want)
		}
	})
}

// TestGzipIsOneMember: whatever is put together of texts and pieces, every
// reader gets one member with the texts in their order.
func TestGzipIsOneMember(t *testing.T) {
	words := []string{"", "a", `{"name":"web-`, `","namespace":"default"},`, strings.Repeat("x", 5000), string(randomBytes(70000))}
	c := New(1 << 20)
	rapid.Check(t, func(t *rapid.T) {
		g, err := NewGzip()
		if err != nil {
			t.Fatal(err)
		}
		defer g.Release()
		var want, got []byte
		take := func(b []byte) error {
			got = append(got, b...)
			return nil
		}
		for range rapid.IntRange(0, 12).Draw(t, "parts") {
			var text string
			for range rapid.IntRange(0, 4).Draw(t, "words") {
				text += rapid.SampledFrom(words).Draw(t, "word")
			}
			want = append(want, text...)
			if rapid.Bool().Draw(t, "piece") {
				err = g.Splice(mustGet(t, c, newPack(), ForGzip, text))
			} else {
				_, err = g.Write([]byte(text))
			}
			if err != nil {
				t.Fatal(err)
			}
			if rapid.Bool().Draw(t, "take") {
				_ = g.Take(take)
			}
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		_ = g.Take(take)
		for name, open := range map[string]func(io.Reader) (io.Reader, error){"std": openStd, "klauspost": openOther} {
			r, err := open(bytes.NewReader(got))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			text, err := io.ReadAll(r)
			if err != nil || !bytes.Equal(text, want) {
				t.Fatalf("%s: %d bytes instead of %d: %v", name, len(text), len(want), err)
			}
		}
	})
}

func openStd(in io.Reader) (io.Reader, error) {
	r, err := stdgzip.NewReader(in)
	if err == nil {
		r.Multistream(false) // what other languages read
	}
	return r, err
}

func openOther(in io.Reader) (io.Reader, error) {
	r, err := kgzip.NewReader(in)
	if err == nil {
		r.Multistream(false)
	}
	return r, err
}

func randomBytes(n int) []byte {
	out, r := make([]byte, n), rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	for i := range out {
		out[i] = byte(r.Uint32())
	}
	return out
}

func TestTextComesBack(t *testing.T) {
	c, p := New(1<<20), newPack()
	for range 2 {
		text, err := mustGet(t, c, p, ForText, "some text").Append([]byte("before "))
		if err != nil || string(text) != "before some text" {
			t.Fatalf("%q: %v", text, err)
		}
	}
	if n := c.Counts(); n.Hits != 1 || n.Misses != 1 || n.Pieces != 1 {
		t.Errorf("%+v", n)
	}
	want := errors.New("no text")
	if _, err := c.Get(newPack(), "form", ForText, func([]byte) ([]byte, error) { return nil, want }); !errors.Is(err, want) {
		t.Errorf("%v", err)
	}
}

// TestBudget: what finds no room is served all the same, and pushes nothing out
// but what is of no use.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 10_000
		c := New(5 * (each + overhead + 100))
		packs := make([]fakePack, 8)
		fill := func() {
			for i := range packs {
				text := string(randomBytes(each)[i:])
				got, err := mustGet(t, c, packs[i], ForText, text).Append(nil)
				if err != nil || string(got) != text {
					t.Fatalf("piece %d: %v", i, err)
				}
			}
		}
		for i := range packs {
			packs[i] = newPack()
		}
		fill()
		if n := c.Counts(); n.Pieces != 5 || n.Bytes > c.budget {
			t.Fatalf("%+v within %d bytes", n, c.budget)
		}
		if _, err := c.Get(packs[0], "form", ForText, never(t)); err != nil {
			t.Fatal(err)
		}
		packs[1].id.Retire()
		packs[2].id.Retire()
		time.Sleep(2 * time.Second)
		fill()
		if n := c.Counts(); n.Pieces != 5 {
			t.Errorf("%+v: packs that were replaced keep their place", n)
		}
		if _, err := c.Get(packs[6], "form", ForText, never(t)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * idle)
		synctest.Wait()
		if n := c.Counts(); n.Pieces != 0 || n.Bytes != 0 {
			t.Errorf("%+v is kept that nobody uses", n)
		}
	})
}

package arena

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"
)

func TestClassesHoldTheirSizes(t *testing.T) {
	last := -1
	for n := 1; n <= maxSize; n++ {
		index, size := classOf(n)
		if size < n || n > 2*minSize && size > n+n/steps+1 {
			t.Fatalf("%d bytes in a slot of %d", n, size)
		}
		if index < last || index >= classes {
			t.Fatalf("class %d after %d", index, last)
		}
		last = index
	}
}

func TestEveryRefKeepsItsBytes(t *testing.T) {
	a := NewPoisoned()
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(worker)))
			type kept struct {
				ref  *Ref
				want []byte
			}
			var all []kept
			for i := range 3000 {
				b := bytes.Repeat([]byte{byte(r.Uint32())}, 1+r.IntN(9000))
				if i%500 == 0 {
					b = bytes.Repeat(b, 1+maxSize/len(b))
				}
				all = append(all, kept{a.Put(b), b})
				if len(all) > 200 {
					n := r.IntN(len(all))
					all[n] = all[len(all)-1]
					all = all[:len(all)-1]
				}
				if i%300 == 0 {
					runtime.GC()
				}
				n := r.IntN(len(all))
				all[n].ref.View(func(got []byte) {
					if !bytes.Equal(got, all[n].want) {
						t.Error("bytes have changed")
					}
				})
			}
		})
	}
	wg.Wait()
}

func TestMemoryIsGivenBack(t *testing.T) {
	a := New()
	refs := make([]*Ref, 3000)
	for i := range refs {
		refs[i] = a.Put(make([]byte, 5000))
	}
	big := a.Put(make([]byte, 2*maxSize))
	live, mapped := a.Stats()
	if live < 3000*5000+2*maxSize || mapped < live {
		t.Fatalf("%d bytes in use of %d", live, mapped)
	}
	runtime.KeepAlive(refs)
	runtime.KeepAlive(big)
	for range 100 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
		if live, mapped = a.Stats(); live == 0 && mapped <= slabSize {
			return
		}
	}
	t.Errorf("%d bytes in use of %d after all is gone", live, mapped)
}

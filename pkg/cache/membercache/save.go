package membercache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/journal"
	"github.com/isthmus-dev/isthmus/pkg/cache/merge"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

// What is kept over a restart, below Config.Dir:
//
//	sources            which cluster a source was, by its UID
//	RESOURCE.VERSION.GROUP/  objects, history and positions (see journal)
//
// What cannot be read is set aside and read from the members anew.

const (
	saveEvery = time.Second
	syncEvery = 5 * time.Second
	// retrySave is how long a state that could not be written is left alone.
	retrySave = 30 * time.Second
	// minLog is the size of a log below which it is not worth a new state.
	minLog = 8 << 20
	// formatVersion changes when files of before cannot be read any more.
	formatVersion = 1
)

// identityOfFiles says of what the files of a resource are, and in which form.
func identityOfFiles(res cache.Resource) string {
	id := fmt.Sprintf("isthmus member cache %d\n%s\nencoding %d\n", formatVersion, res.GroupVersionResource, res.Encoding)
	if t := wire.FieldsOf(res.Group, res.Kind); t != nil {
		id += strings.Join(t.Names, ",")
	}
	return id
}

// restored makes a collection with what was kept of it.
func (c *Cache) restored(res cache.Resource, pods, nodes *merge.Collection) *collection {
	col := c.newCollection(res, pods, nodes)
	if c.cfg.Dir == "" {
		return col
	}
	gvr := res.GroupVersionResource
	dir, err := journal.Open(filepath.Join(c.cfg.Dir, gvr.Resource+"."+gvr.Version+"."+gvr.Group), identityOfFiles(res))
	if err != nil {
		klog.Background().Error(err, "Member cache is not kept over a restart", "resource", gvr.Resource)
		return col
	}
	col.dir = dir
	start := c.cfg.Now.Now()
	found, err := col.Load(dir)
	switch {
	case err != nil:
		aside, asideErr := dir.SetAside(c.cfg.Now.Now())
		klog.Background().Error(errors.Join(err, asideErr), "Kept state of the member cache cannot be read; it is set aside and the members are read anew", "resource", gvr.Resource, "aside", aside)
		col = c.newCollection(res, pods, nodes)
		col.dir = dir
		if asideErr != nil {
			col.dir = nil
		}
	case found:
		stats := col.Stats()
		objects := 0
		for _, n := range stats.Objects {
			objects += n
		}
		klog.Background().Info("Member cache restored", "resource", gvr.Resource, "objects", objects, "events", stats.Log, "took", c.cfg.Now.Since(start))
	}
	return col
}

// saveDue decides whether a complete state is to be written.
func saveDue(on, synced bool, log, objects int64, sinceTry time.Duration) bool {
	if !on {
		return synced && sinceTry >= retrySave
	}
	// A log costs as much to read as it is long, and more than a state does that
	// is written of as many objects; a state, to write.
	return log > max(minLog, objects/64) && sinceTry >= retrySave
}

// save writes states and makes logs durable until ctx ends.
func (c *Cache) save(ctx context.Context) {
	if c.cfg.Dir == "" {
		return
	}
	tick := c.cfg.Now.NewTicker(saveEvery)
	defer tick.Stop()
	tried := map[*collection]time.Time{}
	warn := newLimiter(c.cfg.Now, time.Minute)
	synced := c.cfg.Now.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
		now := c.cfg.Now.Now()
		for _, col := range c.collections {
			size, on, _ := col.JournalState()
			if col.dir == nil || !saveDue(on, col.AnySynced(), size, col.Stats().Bytes, now.Sub(tried[col])) {
				continue
			}
			tried[col] = now
			if err := col.Save(col.dir); err != nil && warn.allow() {
				klog.Background().Error(err, "Member cache is not kept over a restart; trying again", "resource", col.Resource().Resource)
			}
		}
		if now.Sub(synced) >= syncEvery {
			synced = now
			c.saveLogs()
		}
	}
}

func (c *Cache) saveLogs() {
	for _, col := range c.collections {
		if err := col.SaveLog(); err != nil {
			klog.Background().Error(err, "Log of the member cache is not written", "resource", col.Resource().Resource)
		}
	}
}

// Restored lists the sources that are served as they were before a restart and
// that nobody has set since.
func (c *Cache) Restored() []cache.ClusterName {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[cache.ClusterName]bool{}
	var all []cache.ClusterName
	for _, col := range c.collections {
		for _, name := range col.Restored() {
			if _, set := c.sources[name]; !set && !seen[name] {
				seen[name] = true
				all = append(all, name)
			}
		}
	}
	return all
}

// known remembers which clusters the sources were, over a restart. c.mu guards
// it.
type known struct {
	merge.Identities
	lock *os.File // keeps other processes from the folder
}

// acquire makes the folder and takes it for this process.
func (k *known) acquire(c *Cache) error {
	if err := os.MkdirAll(c.cfg.Dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(c.cfg.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("another process keeps its cache here: %w", err), f.Close())
	}
	k.lock = f
	return nil
}

// release lets another process have the folder.
func (k *known) release() {
	if k.lock != nil {
		_ = k.lock.Close() // which gives the lock up, whatever it answers
		k.lock = nil
	}
}

func (k *known) load(c *Cache) {
	if c.cfg.Dir == "" {
		return
	}
	if err := k.acquire(c); err != nil {
		klog.Background().Error(err, "Member cache is not kept over a restart", "folder", c.cfg.Dir)
		c.cfg.Dir = ""
		return
	}
	uids := map[cache.ClusterName]types.UID{}
	b, err := os.ReadFile(k.file(c))
	if err == nil {
		err = json.Unmarshal(b, &uids)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		klog.Background().Error(err, "Kept list of clusters cannot be read; their objects are read anew")
	}
	for name, uid := range uids {
		k.Set(name, uid)
	}
}

func (k *known) file(c *Cache) string { return filepath.Join(c.cfg.Dir, "sources") }

// join drops what was restored of a source that was another cluster then.
func (k *known) join(c *Cache, s Source) {
	if k.Is(s.Name, s.UID) {
		return
	}
	if _, running := c.sources[s.Name]; !running {
		for _, col := range c.collections {
			col.Remove(s.Name)
		}
	}
	k.Set(s.Name, s.UID)
	k.write(c)
}

// leave drops what there is of a source, and the memory of it.
func (k *known) leave(c *Cache, name cache.ClusterName) {
	for _, col := range c.collections {
		col.Remove(name)
	}
	if k.Forget(name) {
		k.write(c)
	}
}

// write replaces the file. Where that fails, a restart reads the new clusters
// anew.
func (k *known) write(c *Cache) {
	if c.cfg.Dir == "" {
		return
	}
	b, err := json.Marshal(k.All())
	if err == nil {
		err = os.WriteFile(k.file(c)+".new", b, 0o600)
	}
	if err == nil {
		err = os.Rename(k.file(c)+".new", k.file(c))
	}
	if err != nil {
		klog.Background().Error(err, "List of clusters is not kept")
	}
}

package cache

import "sync"

// Memo keeps the encodings of one event, so that each format is made once
// however many watchers read it. The zero value is ready. It is safe for
// concurrent use.
type Memo struct {
	mu      sync.Mutex
	formats map[string][]byte
}

// Encoded returns the bytes of the named format, making them on first use.
// An error is not remembered.
func (m *Memo) Encoded(format string, encode func() ([]byte, error)) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b, ok := m.formats[format]; ok {
		return b, nil
	}
	b, err := encode()
	if err != nil {
		return nil, err
	}
	if m.formats == nil {
		m.formats = make(map[string][]byte, 1)
	}
	m.formats[format] = b
	return b, nil
}

// Forget frees the encodings; they are made anew when asked for.
func (m *Memo) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.formats = nil
}

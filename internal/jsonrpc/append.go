package jsonrpc

// AppendNotification appends a notification, without a newline. params must be of
// a type that always encodes.
func AppendNotification(line []byte, method string, params any) []byte {
	line = append(line, `{"jsonrpc":"2.0","method":`...)
	line = AppendString(line, []byte(method))
	line = append(line, `,"params":`...)
	line = append(line, marshal(params)...)
	return append(line, '}')
}

// AppendString appends valid UTF-8 as a JSON string. It escapes only what RFC 8259
// requires: encoding/json spells also <, > and & as six bytes, for web pages.
func AppendString(line, text []byte) []byte {
	const hex = "0123456789abcdef"
	line = append(line, '"')
	start := 0 // of what can be copied as it is
	for i, c := range text {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		line = append(line, text[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			line = append(line, '\\', c)
		case '\n':
			line = append(line, '\\', 'n')
		case '\r':
			line = append(line, '\\', 'r')
		case '\t':
			line = append(line, '\\', 't')
		default:
			line = append(line, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	line = append(line, text[start:]...)
	return append(line, '"')
}

package api

// MinToken and MaxToken bound a client's token, in bytes. `hutch config token` makes 32 characters of 160 random bits.
const (
	MinToken = 16
	MaxToken = 256
)

// AuthenticateParams are system.authenticate's params.
type AuthenticateParams struct {
	Token string `json:"token"` // as it was given to the client
}

// Validate refuses what can be no token.
func (p *AuthenticateParams) Validate() error {
	if n := len(p.Token); n < MinToken || n > MaxToken {
		return invalid("token", "%d bytes are no token", n).WithHint("give what `hutch config token` has printed")
	}
	return nil
}

// Authenticated is system.authenticate's result.
type Authenticated struct {
	// Client is the name that the configuration gives the token; "" where it names no tokens and serves every client of
	// the user's.
	Client string `json:"client"`
}

"""Common English words of five letters, of which no two are equal."""

_LIST = """
about above actor adult again agent alarm album alive angle apple arena argue arise award basic beach begin birth black
blade blame blind block blood board brain brave bread break brick brief bring broad brown brush build cabin cause chain
chair charm chase cheap check chest child claim clean clear clerk clock close cloud coast count court cover craft crash
cream crime crowd crown curve cycle dance death delay depth doubt dozen draft drama dream dress drink drive earth eight
empty enemy enjoy enter equal error event exact exist extra faith fault field fight final first flame flash fleet float
floor fluid focus force frame fresh front fruit ghost giant glass globe glory grade grain grand grant grass great green
group guard guess guide happy heart heavy horse hotel house human image index inner issue joint judge juice knife known
label large laser layer learn lemon level light limit local logic loose lunch magic major maker march match mayor metal
model money month motor mount mouse mouth movie music nerve night noise north novel nurse ocean offer order other owner
paint panel paper party peace phase phone photo piano piece pilot pitch place plain plane plant plate point pound power
press price pride prime print prize proof proud queen quick quiet radio raise range rapid ratio reach ready right river
robot rough round route royal rural scale scene scope score sense shade shape share sharp sheep sheet shell shift shirt
shock short sight skill sleep slide small smart smile smoke solid sound south space speak speed sport stage stand start
state steam steel stick stock stone storm story strip study style sugar table taste teach theme thick think throw tiger
title today topic total touch tower track trade train treat trend trial trick truck trust truth uncle under union upper
urban usual value video virus visit vital voice waste watch water wheel white whole woman world worry wrong youth
"""
WORDS = tuple(_LIST.split())
